#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

namespace tern {

/// The order in which an epoch reads the samples. It is stateless and depends
/// only on (seed, epoch), so that training can resume anywhere.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Number of samples per epoch.
  virtual int64_t size() const = 0;

  /// Returns the `size()` indices of an epoch, in order.
  virtual std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const = 0;

  /// Called by DataLoader and ShardedSampler, which cut the order into batches
  /// of `samples` samples (over all ranks). Returns the sampler to use instead
  /// of this one, or null to use this one (the default).
  virtual std::shared_ptr<const Sampler> for_batches_of(
      int64_t /*samples*/) const {
    return nullptr;
  }
};

/// Visits the samples in order: 0, 1, ..., size - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  int64_t size_;
};

/// Visits every sample once, reshuffled each epoch.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  int64_t size_;
};

/// Draws samples with replacement: index i has probability weights[i] / sum.
/// Like torch.utils.data.WeightedRandomSampler.
class WeightedSampler final : public Sampler {
 public:
  /// \param weights      One per sample, finite, >= 0, not all 0.
  /// \param num_samples  Samples per epoch; 0: the number of weights.
  /// \throws c10::ValueError if an argument is invalid; the message names the
  ///         invalid weight.
  explicit WeightedSampler(
      const std::vector<double>& weights,
      int64_t num_samples = 0);
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<double> cumulative_;
  int64_t num_samples_;
};

/// Visits every sample once: shards in random order, and their samples shuffled
/// by a buffer, as in WebDataset. Consecutive samples are close to each other
/// in a file, so they are read faster from a disk or a network than in
/// RandomSampler's order.
///
///   BufferedSampler order(images->shards()->shard_sizes(), 1000);
class BufferedSampler final : public Sampler {
 public:
  /// \param shard_sizes  Number of samples in each shard, in index order.
  /// \param buffer       Number of samples shuffled together, at least 1. A
  ///                     buffer of a few times the shard size shuffles well.
  /// \throws c10::ValueError for a negative size or a buffer below 1.
  BufferedSampler(std::vector<int64_t> shard_sizes, int64_t buffer);

  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<int64_t> shard_sizes_, begins_;
  int64_t buffer_, size_ = 0;
};

struct LengthBucketOptions {
  /// Reshuffles every epoch. False: sorts by length, longest first. Sorted
  /// batches need the least padding, which suits evaluation. The largest batch
  /// comes first, so if it does not fit into memory, the first batch fails.
  bool shuffle = true;
  /// Number of batches whose samples are sorted by length together. A larger
  /// pool needs less padding but makes batches less random.
  int64_t pool = 50;
};

/// Visits every sample once, in batches of samples of similar length, which
/// need little padding. Each epoch shuffles the samples, sorts pools of them by
/// length, cuts the pools into batches and shuffles the batches. An incomplete
/// batch stays last; its samples also have similar lengths, short or long at
/// random. With several ranks, the lengths are similar within each global
/// batch.
///
///   auto buckets = std::make_shared<LengthBucketSampler>(lengths);
///   auto data = DataBunch::create(train, valid, {.sampler = buckets});
///
/// The batch size is the loader's; without a loader, use the sampler that
/// `for_batches_of` returns.
class LengthBucketSampler final : public Sampler {
 public:
  /// \param lengths  One per sample, >= 0.
  /// \throws c10::ValueError for a negative length or a pool below 1.
  explicit LengthBucketSampler(
      std::vector<int64_t> lengths,
      LengthBucketOptions options = {});

  int64_t size() const override { return std::ssize(*lengths_); }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;
  /// \throws c10::ValueError if `samples` is below 1.
  std::shared_ptr<const Sampler> for_batches_of(int64_t samples) const override;

 private:
  std::shared_ptr<const std::vector<int64_t>> lengths_;
  LengthBucketOptions options_;
  int64_t batch_size_ = 64;
};

/// The rank of a ShardedSampler, and how batches are divided.
struct ShardOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// Batch size of one rank.
  int64_t batch_size = 64;
  /// Drops the last global batch if it is not full.
  bool drop_last = false;
  /// Gives every rank the same number of batches: if the last batch has fewer
  /// samples than ranks, ranks without a sample repeat its first sample, which
  /// `real_samples` does not count.
  bool equal_batches = true;
};

/// The shard of another sampler's epoch that one rank reads.
///
/// Batch b of all ranks together is batch b of a single process with
/// `world_size` times the batch size. An incomplete last batch is divided
/// evenly among the ranks, or dropped with `drop_last`. No other samples are
/// dropped, and only `equal_batches` repeats samples;
/// torch.utils.data.DistributedSampler repeats samples until every rank has the
/// same number of them.
class ShardedSampler final : public Sampler {
 public:
  /// \throws c10::ValueError if the rank or the batch size is out of range, or
  ///         no rank would have a sample.
  ShardedSampler(std::shared_ptr<const Sampler> whole, ShardOptions options);

  int64_t size() const override;
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;
  /// Returns the positions of this rank's samples in the whole order.
  std::vector<int64_t> places() const;
  /// The sampler whose order is shared by the ranks.
  const Sampler& whole() const { return *whole_; }

  /// Number of samples in batch `batch` of this rank and of all ranks, without
  /// repeated samples. To get the mean over all samples, multiply each rank's
  /// mean by `world_size * of_rank / of_all` and average over the ranks.
  struct RealSamples {
    int64_t of_rank, of_all;
  };
  RealSamples real_samples(int64_t batch) const;

  const ShardOptions& options() const { return options_; }

 private:
  // Size of the last global batch if it is incomplete, otherwise 0.
  int64_t tail() const { return samples_ % global_batch(); }
  int64_t global_batch() const {
    return options_.batch_size * options_.world_size;
  }
  int64_t share_of_tail(int64_t rank) const;

  std::shared_ptr<const Sampler> whole_;
  ShardOptions options_;
  int64_t samples_;  // per epoch, over all ranks
};

}  // namespace tern
