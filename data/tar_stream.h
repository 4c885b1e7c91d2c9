#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/shard_files.h"
#include "tern/data/stream_dataset.h"
#include "tern/data/tar_dataset.h"

namespace tern {

struct TarStreamOptions {
  /// What becomes of a sample, as in TarDatasetOptions.
  TarDecoder decode = nullptr;
  /// Shards in another order each epoch, and `shuffle_buffer` samples of a lane
  /// mixed; 1 keeps the order within shards.
  bool shuffle = false;
  int64_t shuffle_buffer = 1000;
  /// Draws shards with replacement, without end, so that all ranks have samples
  /// for any number of batches.
  bool resample = false;
  ShardSetOptions shards = {};
};

/// Tar shards as a stream: one is opened, and fetched if it is on the web, when
/// its turn comes. Shards, not samples, are divided over ranks and then over
/// lanes, each to one of them.
///
///   auto stream = TarStream::from(
///       {"https://host/train-{000..999}.tar"},
///       {.shuffle = true, .resample = true});
///   StreamLoader loader(stream, {.batch_size = 64, .batches = 1000});
///
/// A damaged shard is an error before any of its samples is given.
class TarStream final : public StreamDataset {
 public:
  /// \throws c10::ValueError for bad patterns or a buffer below 1.
  static std::shared_ptr<const TarStream> from(
      const std::vector<std::string>& shards,
      TarStreamOptions options = {});

  /// \throws c10::ValueError if there are fewer shards than ranks.
  std::unique_ptr<Pass> pass(const StreamContext& context) const override;
  bool is_endless() const override { return options_->resample; }

  const std::vector<std::string>& shards() const { return shards_; }

 private:
  class ShardPass;
  TarStream(std::vector<std::string> shards, TarStreamOptions options);

  std::vector<std::string> shards_;
  std::shared_ptr<const TarStreamOptions> options_;
};

}  // namespace tern
