#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/dataset.h"
#include "tern/data/shards/tar_shards.h"

namespace tern {

/// Decodes a sample to a batch of one (N = 1). `rng` is the sample's random
/// number generator of this epoch. Called from several threads.
using TarDecoder = std::function<
    Batch(const TarSample& sample, const BatchContext& context, SampleRng rng)>;

/// Returns a decoder of fields by their suffix, see `TarSample::tensor`.
TarDecoder decode_fields(
    std::vector<std::string> inputs,
    std::vector<std::string> targets);

struct TarDatasetOptions {
  /// Decodes a sample. Unset: field npy is the input, cls the target.
  TarDecoder decode = nullptr;
  ShardSetOptions shards = {};
};

/// Tar shards in WebDataset's layout as a map-style data set: every sample once
/// an epoch, the same batches for any number of workers, equal steps on all
/// ranks and exact resume, as for any data set of a DataLoader.
///
///   auto points = TarDataset::from({"train-{000..009}.tar"});
///   DataLoader loader(points, {.batch_size = 64, .shuffle = true});
///
/// Images are decoded by `ImageDataBunch::from_tar`; for samples without an
/// index, such as those of a pipe, see StreamDataset.
class TarDataset final : public Dataset {
 public:
  /// \throws as `TarShards::open`.
  static std::shared_ptr<const TarDataset> from(
      const std::vector<std::string>& shards,
      TarDatasetOptions options = {});

  int64_t size() const override { return shards_->size(); }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  /// Shard and key.
  std::string describe(int64_t index) const override;

  const std::shared_ptr<const TarShards>& shards() const { return shards_; }

 private:
  TarDataset(std::shared_ptr<const TarShards> shards, TarDecoder decode);

  std::shared_ptr<const TarShards> shards_;
  TarDecoder decode_;
};

}  // namespace tern
