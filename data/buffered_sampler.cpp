#include "tern/data/buffered_sampler.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tern/data/shuffle_buffer.h"

namespace tern {

namespace {

// A sample number that no data set has: the key of the buffer.
constexpr int64_t kBufferKey = -2;

}  // namespace

BufferedSampler::BufferedSampler(
    std::vector<int64_t> shard_sizes,
    int64_t buffer)
    : shard_sizes_(std::move(shard_sizes)), buffer_(buffer) {
  const auto smallest =
      std::min_element(shard_sizes_.begin(), shard_sizes_.end());
  TORCH_CHECK_VALUE(
      buffer_ >= 1 && (smallest == shard_sizes_.end() || *smallest >= 0),
      fmt::format(
          "[BufferedSampler] the buffer is of {} samples; expected 1 or more, "
          "and no shard with fewer than 0.",
          buffer_));
  for (const int64_t size : shard_sizes_) {
    begins_.push_back(size_);
    size_ += size;
  }
}

std::vector<int64_t> BufferedSampler::indices(uint64_t seed, int64_t epoch)
    const {
  const std::vector<int64_t> shards =
      RandomSampler(static_cast<int64_t>(shard_sizes_.size()))
          .indices(seed, epoch);
  size_t shard = 0;
  int64_t place = 0;  // in it
  const auto pull = [&]() -> std::optional<int64_t> {
    while (shard < shards.size() && place == shard_sizes_[shards[shard]]) {
      ++shard;
      place = 0;
    }
    if (shard == shards.size()) return std::nullopt;
    return begins_[shards[shard]] + place++;
  };
  ShuffleBuffer<int64_t> buffer(
      static_cast<size_t>(buffer_),
      SampleRng(seed, epoch, kBufferKey));
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(size_));
  while (const auto index = buffer.next(pull)) order.push_back(*index);
  return order;
}

}  // namespace tern
