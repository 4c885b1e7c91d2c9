#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tern/data/shard_files.h"
#include "tern/data/tar_sample.h"

namespace tern {

/// The samples of several shards, each reachable by its index: the index of
/// every shard is read at the start, and the samples are read in place. Safe to
/// use from several threads.
class TarShards {
 public:
  /// \param patterns  See `expand_shards`; URLs are fetched, two at a time.
  /// \throws DataError for a damaged shard, unless they are skipped and another
  ///         is good, or a sample that lacks a field; IoError; c10::ValueError.
  static std::shared_ptr<const TarShards> open(
      const std::vector<std::string>& patterns,
      const ShardSetOptions& options = {});

  /// Samples of all shards.
  int64_t size() const { return ends_.back(); }
  TarSample sample(int64_t index) const;
  /// Samples of each shard, in the order of their indices.
  std::vector<int64_t> shard_sizes() const;
  /// The shards, without those that were skipped.
  const std::vector<std::shared_ptr<const TarShard>>& shards() const {
    return shards_;
  }

 private:
  TarShards() = default;
  void keep_open(size_t shard) const;

  std::vector<std::shared_ptr<const TarShard>> shards_;
  std::vector<int64_t> ends_;  // ends_[k]: samples of the shards 0..k
  mutable std::mutex mutex_;
  mutable std::deque<size_t> open_;    // shards, the one opened first in front
  mutable std::vector<char> is_open_;  // whether a shard is in there
};

/// Opens one shard and checks its samples.
/// \param is_given_up  Ends a download once it is true.
/// \return null, after a message, if it is bad and such are skipped.
std::shared_ptr<const TarShard> open_shard(
    const std::string& shard,
    const ShardSetOptions& options,
    const std::atomic<bool>* is_given_up = nullptr);

}  // namespace tern
