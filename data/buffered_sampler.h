#pragma once

#include <cstdint>
#include <vector>

#include "tern/data/sampler.h"

namespace tern {

/// Every sample once, the shards in random order and their samples mixed by a
/// buffer: neighbours in the order are neighbours in a file, which a disk or a
/// network reads faster than RandomSampler's jumps.
///
///   BufferedSampler order(images->shards()->shard_sizes(), 1000);
class BufferedSampler final : public Sampler {
 public:
  /// \param shard_sizes  Samples of each shard, in the order of their indices.
  /// \param buffer       Samples that are mixed, at least 1. A few times what
  ///                     a shard holds mixes well.
  /// \throws c10::ValueError for a negative size or a buffer below 1.
  BufferedSampler(std::vector<int64_t> shard_sizes, int64_t buffer);

  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<int64_t> shard_sizes_, begins_;
  int64_t buffer_, size_ = 0;
};

}  // namespace tern
