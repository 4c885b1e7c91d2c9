#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tern/data/shards/tar_sample.h"

namespace tern {

/// Options of a set of shards.
struct ShardSetOptions {
  /// Fields that every sample must have, such as {"jpg", "cls"}. A sample
  /// without one is an error that names it.
  std::vector<std::string> fields = {};
  /// Skips a shard that is damaged, truncated or missing, with a log message,
  /// instead of throwing.
  bool skip_bad_shards = false;
  /// SHA-256 by file name, from `read_sha256sums`. Verified for downloaded
  /// shards; one that is not listed is then an error.
  std::map<std::string, std::string> checksums = {};
  /// Where downloaded shards are stored; see `cache_folder`.
  std::filesystem::path cache = {};
  /// Retries of a download, each after a longer pause.
  int retries = 3;
};

/// Expands patterns to the paths or URLs of shards, in order:
/// "train-{000..009}.tar" gives ten, "{train,extra}.tar" two.
///
/// \throws c10::ValueError for an unclosed brace, an invalid range, or if there
///         is no shard at all.
std::vector<std::string> expand_shards(
    const std::vector<std::string>& patterns);

/// Returns the file of a shard: the path itself, or for a URL its download in
/// the cache, see `download`.
/// \throws DownloadError, DataError; IoError.
std::filesystem::path fetch_shard(
    const std::string& shard,
    const ShardSetOptions& options);

/// The samples of several shards, accessed by index: opening reads the headers
/// of every shard, and samples are read in place. Thread-safe.
class TarShards {
 public:
  /// \param patterns  See `expand_shards`; URLs are downloaded, two at a time.
  /// \throws DataError for a damaged shard, unless such are skipped and another
  ///         is intact, or a sample without a field; IoError; c10::ValueError.
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

}  // namespace tern
