#include "tern/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <c10/util/Exception.h>

#include "tern/data/support/random.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// Sample numbers that no dataset has, used as random keys: for the order, for a
// buffer's draws and for the buckets' draws.
constexpr int64_t kOrderKey = -1, kBufferKey = -2, kBucketKey = -3;

template <class T>
void shuffle(std::vector<T>& values, SampleRng& rng) {
  for (int64_t i = std::ssize(values) - 1; i > 0; --i) {
    std::swap(values[i], values[rng.below(i + 1)]);
  }
}

}  // namespace

std::vector<int64_t> SequentialSampler::indices(uint64_t, int64_t) const {
  std::vector<int64_t> order(size_);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> RandomSampler::indices(uint64_t seed, int64_t epoch)
    const {
  std::vector<int64_t> order = SequentialSampler(size_).indices(seed, epoch);
  SampleRng rng(seed, epoch, kOrderKey);
  shuffle(order, rng);
  return order;
}

WeightedSampler::WeightedSampler(
    const std::vector<double>& weights,
    int64_t num_samples)
    : num_samples_(
          num_samples ? num_samples : static_cast<int64_t>(weights.size())) {
  TERN_CHECK_VALUE(
      num_samples >= 0,
      "[WeightedSampler] num_samples is {}; expected 0 or more.",
      num_samples);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    TERN_CHECK_VALUE(
        std::isfinite(weights[i]) && weights[i] >= 0,
        "[WeightedSampler] weights[{}] is {}; expected a finite number >= 0.",
        i,
        weights[i]);
    cumulative_.push_back(sum += weights[i]);
  }
  TORCH_CHECK_VALUE(
      sum > 0,
      "[WeightedSampler] all weights are 0, or there are none; expected at "
      "least one weight above 0.");
}

std::vector<int64_t> WeightedSampler::indices(uint64_t seed, int64_t epoch)
    const {
  std::vector<int64_t> order(num_samples_);
  SampleRng rng(seed, epoch, kOrderKey);
  for (int64_t& index : order) {
    const double unit =
        (rng() * 0x1p-32 + rng()) * 0x1p-32;  // of these 64 bits, 53 are used
    const auto at = std::upper_bound(
        cumulative_.begin(),
        cumulative_.end() - 1,
        unit * cumulative_.back());
    index = at - cumulative_.begin();
  }
  return order;
}

BufferedSampler::BufferedSampler(
    std::vector<int64_t> shard_sizes,
    int64_t buffer)
    : shard_sizes_(std::move(shard_sizes)), buffer_(buffer) {
  const auto smallest =
      std::min_element(shard_sizes_.begin(), shard_sizes_.end());
  TERN_CHECK_VALUE(
      buffer_ >= 1 && (smallest == shard_sizes_.end() || *smallest >= 0),
      "[BufferedSampler] the buffer has {} samples; expected 1 or more, and "
      "shard sizes of 0 or more.",
      buffer_);
  for (const int64_t size : shard_sizes_) {
    begins_.push_back(size_);
    size_ += size;
  }
}

std::vector<int64_t> BufferedSampler::indices(uint64_t seed, int64_t epoch)
    const {
  SampleRng rng(seed, epoch, kBufferKey);
  std::vector<int64_t> held, order;
  order.reserve(static_cast<size_t>(size_));
  const auto give_one = [&] {
    std::swap(held[rng.below(held.size())], held.back());
    order.push_back(held.back());
    held.pop_back();
  };
  const RandomSampler shards(static_cast<int64_t>(shard_sizes_.size()));
  for (const int64_t shard : shards.indices(seed, epoch)) {
    for (int64_t i = 0; i < shard_sizes_[shard]; ++i) {
      held.push_back(begins_[shard] + i);
      if (static_cast<int64_t>(held.size()) == buffer_) give_one();
    }
  }
  while (!held.empty()) give_one();
  return order;
}

LengthBucketSampler::LengthBucketSampler(
    std::vector<int64_t> lengths,
    LengthBucketOptions options)
    : lengths_(
          std::make_shared<const std::vector<int64_t>>(std::move(lengths))),
      options_(options) {
  TERN_CHECK_VALUE(
      options_.pool >= 1,
      "[LengthBucketSampler] the pool has {} batches; expected 1 or more.",
      options_.pool);
  for (int64_t i = 0; i < size(); ++i) {
    TERN_CHECK_VALUE(
        (*lengths_)[i] >= 0,
        "[LengthBucketSampler] lengths[{}] is {}; expected 0 or more.",
        i,
        (*lengths_)[i]);
  }
}

std::shared_ptr<const Sampler> LengthBucketSampler::for_batches_of(
    int64_t samples) const {
  TERN_CHECK_VALUE(
      samples >= 1,
      "[LengthBucketSampler] a batch has {} samples; expected 1 or more.",
      samples);
  if (samples == batch_size_) return nullptr;
  auto other = std::make_shared<LengthBucketSampler>(*this);
  other->batch_size_ = samples;
  return other;
}

std::vector<int64_t> LengthBucketSampler::indices(uint64_t seed, int64_t epoch)
    const {
  const auto length_of = [&](int64_t index) { return (*lengths_)[index]; };
  if (!options_.shuffle) {
    std::vector<int64_t> order = SequentialSampler(size()).indices(seed, epoch);
    std::ranges::stable_sort(order, std::ranges::greater(), length_of);
    return order;
  }
  std::vector<int64_t> drawn = RandomSampler(size()).indices(seed, epoch);
  SampleRng rng(seed, epoch, kBucketKey);
  const int64_t full = size() / batch_size_, rest = size() % batch_size_;
  // Pools are as equal as possible, since sorting would have little effect in a
  // small last pool.
  const int64_t pools =
      std::max<int64_t>(1, (full + options_.pool - 1) / options_.pool);
  auto begin = drawn.begin();
  for (int64_t pool = 0; pool < pools; ++pool) {
    const bool is_last = pool == pools - 1;
    const int64_t batches = full / pools + (pool < full % pools ? 1 : 0);
    const auto end = is_last ? drawn.end() : begin + batches * batch_size_;
    std::ranges::stable_sort(begin, end, std::ranges::less(), length_of);
    if (is_last) {
      // The incomplete batch may be dropped, so it must not always contain the
      // longest samples.
      const auto first =
          begin + static_cast<int64_t>(rng.below(end - begin - rest + 1));
      std::rotate(first, first + rest, end);
    }
    begin = end;
  }
  std::vector<int64_t> batches = SequentialSampler(full).indices(seed, epoch);
  shuffle(batches, rng);
  std::vector<int64_t> order;
  order.reserve(drawn.size());
  for (const int64_t batch : batches) {
    const auto first = drawn.begin() + batch * batch_size_;
    order.insert(order.end(), first, first + batch_size_);
  }
  order.insert(order.end(), drawn.end() - rest, drawn.end());
  return order;
}

ShardedSampler::ShardedSampler(
    std::shared_ptr<const Sampler> whole,
    ShardOptions options)
    : whole_(std::move(whole)), options_(options) {
  TORCH_CHECK_VALUE(
      whole_,
      "[ShardedSampler] the sampler is null; pass the sampler to divide among "
      "the ranks.");
  TERN_CHECK_VALUE(
      options.world_size >= 1 && options.rank >= 0 &&
          options.rank < options.world_size && options.batch_size >= 1,
      "[ShardedSampler] rank {} of {} with batches of {}; expected a rank "
      "in 0..world_size - 1 and a batch size of 1 or more.",
      options.rank,
      options.world_size,
      options.batch_size);
  if (auto other = whole_->for_batches_of(global_batch())) {
    whole_ = std::move(other);
  }
  samples_ = whole_->size();
  if (options.drop_last) samples_ -= tail();
  TERN_CHECK_VALUE(
      samples_ > 0,
      "[ShardedSampler] {} samples do not fill a batch of {} on each of {} "
      "ranks; expected at least one full batch per rank. Use a smaller batch "
      "size, fewer processes or more data.",
      whole_->size(),
      options.batch_size,
      options.world_size);
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
  std::vector<int64_t> mine = places();
  for (int64_t& place : mine) place = all.at(place);
  return mine;
}

std::vector<int64_t> ShardedSampler::places() const {
  const int64_t full = samples_ / global_batch();
  std::vector<int64_t> mine;
  mine.reserve(size());
  const auto take = [&](int64_t begin, int64_t count) {
    for (int64_t i = 0; i < count; ++i) mine.push_back(begin + i);
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
