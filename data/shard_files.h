#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tern {

/// Which shards there are, and what is expected of them.
struct ShardSetOptions {
  /// Fields that every sample must have, such as {"jpg", "cls"}; a sample that
  /// lacks one is an error that names it.
  std::vector<std::string> fields = {};
  /// Leaves out a shard that is damaged, cut off or gone, with a message,
  /// instead of ending with an error.
  bool skip_bad_shards = false;
  /// SHA-256 by file name, as `read_sha256sums` gives them. Those of shards
  /// from the web are checked; one that is not listed is an error then.
  std::map<std::string, std::string> checksums = {};
  /// Where shards from the web are kept; see `cache_folder`.
  std::filesystem::path cache = {};
  /// Further attempts to fetch a shard, each after a longer pause.
  int retries = 3;
};

/// The shards that patterns name, in order: "train-{000..009}.tar" is ten, and
/// "{train,extra}.tar" two. Paths and URLs alike.
///
/// \throws c10::ValueError for a brace without an end, a range that is none, or
///         if there is no shard at all.
std::vector<std::string> expand_shards(
    const std::vector<std::string>& patterns);

/// The file of a shard: itself, or for a URL a download that is kept in the
/// cache and fetched once, see `download`.
/// \param is_given_up  Ends a download with an exception of no known type once
///                     it is true.
/// \throws DownloadError, DataError; IoError.
std::filesystem::path fetch_shard(
    const std::string& shard,
    const ShardSetOptions& options,
    const std::atomic<bool>* is_given_up = nullptr);

}  // namespace tern
