#include "tern/data/sharded_sampler.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace tern {

ShardedSampler::ShardedSampler(
    std::shared_ptr<const Sampler> whole,
    ShardOptions options)
    : whole_(std::move(whole)), options_(options) {
  TORCH_CHECK_VALUE(
      whole_,
      "[ShardedSampler] the sampler to share out is null; give a sampler.");
  TORCH_CHECK_VALUE(
      options.world_size >= 1 && options.rank >= 0 &&
          options.rank < options.world_size && options.batch_size >= 1,
      fmt::format(
          "[ShardedSampler] rank {} of {} with batches of {}; expected a rank "
          "in 0..world_size - 1 and a batch size of 1 or more.",
          options.rank,
          options.world_size,
          options.batch_size));
  samples_ = whole_->size();
  if (options.drop_last) samples_ -= tail();
  TORCH_CHECK_VALUE(
      samples_ > 0,
      fmt::format(
          "[ShardedSampler] {} samples make no full batch of {} for {} ranks; "
          "use a smaller batch size, fewer processes or more data.",
          whole_->size(),
          options.batch_size,
          options.world_size));
}

int64_t ShardedSampler::share_of_tail(int64_t rank) const {
  return tail() / options_.world_size +
         (rank < tail() % options_.world_size ? 1 : 0);
}

int64_t ShardedSampler::size() const {
  const int64_t full = samples_ / global_batch() * options_.batch_size;
  const int64_t share = share_of_tail(options_.rank);
  const bool is_repeated = options_.equal_batches && tail() > 0 && share == 0;
  return full + share + (is_repeated ? 1 : 0);
}

std::vector<int64_t> ShardedSampler::indices(uint64_t seed, int64_t epoch)
    const {
  const std::vector<int64_t> all = whole_->indices(seed, epoch);
  const int64_t full = samples_ / global_batch();
  std::vector<int64_t> mine;
  mine.reserve(size());
  const auto take = [&](int64_t begin, int64_t count) {
    mine.insert(mine.end(), all.begin() + begin, all.begin() + begin + count);
  };
  for (int64_t batch = 0; batch < full; ++batch) {
    take(
        batch * global_batch() + options_.rank * options_.batch_size,
        options_.batch_size);
  }
  int64_t begin = full * global_batch();
  for (int64_t rank = 0; rank < options_.rank; ++rank) {
    begin += share_of_tail(rank);
  }
  take(begin, share_of_tail(options_.rank));
  if (static_cast<int64_t>(mine.size()) < size()) {
    take(full * global_batch(), 1);
  }
  return mine;
}

ShardedSampler::RealSamples ShardedSampler::real_samples(int64_t batch) const {
  if (batch < samples_ / global_batch()) {
    return {options_.batch_size, global_batch()};
  }
  return {share_of_tail(options_.rank), tail()};
}

}  // namespace tern
