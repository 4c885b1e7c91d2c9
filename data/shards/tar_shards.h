#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tern/data/dataset.h"
#include "tern/data/shards/tar_sample.h"
#include "tern/data/support/sink.h"

namespace tern {

struct ShardSetOptions {
  /// Fields required in every sample, such as {"jpg", "cls"}. A sample without
  /// one of them is an error that names the sample.
  std::vector<std::string> fields = {};
  /// Skips a shard that is damaged, truncated or missing, with a warning to
  /// `sink`, instead of throwing.
  bool skip_bad_shards = false;
  /// SHA-256 by file name, from `read_sha256sums`. If set, each shard is read
  /// and verified when the shards are opened, and a shard that is not listed is
  /// an error. (A tar archive has no checksums of its files' content.)
  std::map<std::string, std::string> checksums = {};
  /// Where downloaded shards are stored; see `cache_folder`.
  std::filesystem::path cache = {};
  /// Number of download retries, each after a longer pause.
  int retries = 3;
  /// Receives warnings; empty: `terminal()`.
  Sink sink = {};
};

/// Expands patterns to the paths or URLs of shards, in order:
/// "train-{000..009}.tar" expands to ten shards, "{train,extra}.tar" to two.
///
/// \throws c10::ValueError for an unclosed brace or an invalid range, or if the
///         patterns expand to no shard.
std::vector<std::string> expand_shards(
    const std::vector<std::string>& patterns);

/// Returns the file of a shard: the path itself, or for a URL the downloaded
/// file in the cache (see `download`). Verifies the checksum if one is given.
/// \throws DownloadError, DataError; IoError.
std::filesystem::path fetch_shard(
    const std::string& shard,
    const ShardSetOptions& options);

/// The samples of several shards, accessed by index. Opening reads the headers
/// of every shard; samples are read in place. Thread-safe.
class TarShards {
 public:
  /// \param patterns  See `expand_shards`; URLs are downloaded, two at a time.
  /// \throws DataError for a damaged shard, unless such shards are skipped and
  ///         at least one shard is intact, or for a sample without a required
  ///         field; IoError; c10::ValueError.
  static std::shared_ptr<const TarShards> open(
      const std::vector<std::string>& patterns,
      const ShardSetOptions& options = {});

  /// Number of samples in all shards.
  int64_t size() const { return ends_.back(); }
  TarSample sample(int64_t index) const;
  /// Number of samples per shard, in the order of their indices.
  std::vector<int64_t> shard_sizes() const;
  /// The shards, without skipped ones.
  const std::vector<std::shared_ptr<const TarShard>>& shards() const {
    return shards_;
  }

 private:
  TarShards() = default;
  void keep_open(size_t shard) const;

  std::vector<std::shared_ptr<const TarShard>> shards_;
  std::vector<int64_t> ends_;  // ends_[k]: samples of the shards 0..k
  mutable std::mutex mutex_;
  mutable std::deque<size_t> open_;  // shards, in the order of opening
};

/// Decodes a sample to a batch of one (N = 1). `rng` is the sample's random
/// number generator in this epoch. Called from several threads.
using TarDecoder = std::function<
    Batch(const TarSample& sample, const BatchContext& context, SampleRng rng)>;

/// Returns a decoder of fields by their suffix; see `TarSample::tensor`.
TarDecoder decode_fields(
    std::vector<std::string> inputs,
    std::vector<std::string> targets);

struct TarDatasetOptions {
  /// Decodes a sample. Unset: field npy is the input, cls the target.
  TarDecoder decode = nullptr;
  ShardSetOptions shards = {};
};

/// Tar shards in WebDataset's layout as a map-style dataset. With a DataLoader,
/// it reads every sample once per epoch, returns the same batches for any
/// number of workers, has the same number of steps on all ranks, and resumes
/// exactly.
///
///   auto points = TarDataset::from({"train-{000..009}.tar"});
///   DataLoader loader(points, {.batch_size = 64, .shuffle = true});
///
/// `ImageDataBunch::from_tar` decodes images. For samples without an index,
/// such as from a pipe, see StreamDataset.
class TarDataset final : public Dataset {
 public:
  /// \throws the errors of `TarShards::open`.
  static std::shared_ptr<const TarDataset> from(
      const std::vector<std::string>& shards,
      TarDatasetOptions options = {});

  int64_t size() const override { return shards_->size(); }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  /// Returns shard and key.
  std::string describe(int64_t index) const override;
  std::string why_no_folds(const Dataset& other) const override;

  const std::shared_ptr<const TarShards>& shards() const { return shards_; }

 private:
  TarDataset(std::shared_ptr<const TarShards> shards, TarDecoder decode);

  std::shared_ptr<const TarShards> shards_;
  TarDecoder decode_;  // empty: fields npy and cls
};

}  // namespace tern
