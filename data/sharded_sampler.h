#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tern/data/sampler.h"

namespace tern {

/// Whose share of the samples, and how it is cut.
struct ShardOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// Samples in a batch of one rank.
  int64_t batch_size = 64;
  /// Leaves out the last batch of all ranks together when it is not full.
  bool drop_last = false;
  /// Every rank has as many batches: where the last batch holds fewer samples
  /// than there are ranks, those that would go empty get its first sample
  /// again, which `real_samples` does not count.
  bool equal_batches = true;
};

/// One rank's share of another sampler's epoch.
///
/// Batch b of all ranks together holds the samples that batch b of one process
/// with `world_size` times the batch size would hold, so that both train
/// alike. Every sample comes once an epoch: a short last batch is divided
/// evenly. As torch.utils.data.DistributedSampler, which repeats samples to
/// fill it.
class ShardedSampler final : public Sampler {
 public:
  /// \throws c10::ValueError for a rank outside the world, a batch size below
  ///         1, or when nothing would be left for any rank.
  ShardedSampler(std::shared_ptr<const Sampler> whole, ShardOptions options);

  int64_t size() const override;
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

  /// How many samples batch `batch` holds, of this rank and of all, without
  /// those that are repeated. The mean over all samples is that over ranks of
  /// `world_size * of_rank / of_all` times their means.
  struct RealSamples {
    int64_t of_rank, of_all;
  };
  RealSamples real_samples(int64_t batch) const;

  const ShardOptions& options() const { return options_; }

 private:
  // Of the last batch, which may be short.
  int64_t tail() const { return samples_ % global_batch(); }
  int64_t global_batch() const {
    return options_.batch_size * options_.world_size;
  }
  int64_t share_of_tail(int64_t rank) const;

  std::shared_ptr<const Sampler> whole_;
  ShardOptions options_;
  int64_t samples_;  // an epoch, of all ranks
};

}  // namespace tern
