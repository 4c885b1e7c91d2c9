#include "tern/data/shards/tar_dataset.h"

#include <utility>

namespace tern {

TarDecoder decode_fields(
    std::vector<std::string> inputs,
    std::vector<std::string> targets) {
  return [inputs = std::move(inputs), targets = std::move(targets)](
             const TarSample& sample,
             const BatchContext&,
             SampleRng) {
    Batch batch;
    for (const std::string& field : inputs) {
      batch.inputs.push_back(sample.tensor(field));
    }
    for (const std::string& field : targets) {
      batch.targets.push_back(sample.tensor(field));
    }
    return batch;
  };
}

TarDataset::TarDataset(
    std::shared_ptr<const TarShards> shards,
    TarDecoder decode)
    : shards_(std::move(shards)), decode_(std::move(decode)) {}

std::shared_ptr<const TarDataset> TarDataset::from(
    const std::vector<std::string>& shards,
    TarDatasetOptions options) {
  if (!options.decode) options.decode = decode_fields({"npy"}, {"cls"});
  return std::shared_ptr<const TarDataset>(new TarDataset(
      TarShards::open(shards, options.shards),
      std::move(options.decode)));
}

Batch TarDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  std::vector<Batch> samples;
  samples.reserve(indices.size());
  for (const int64_t index : indices) {
    samples.push_back(
        decode_(shards_->sample(index), context, context.rng(index)));
  }
  return collate(samples, context);
}

std::string TarDataset::describe(int64_t index) const {
  return shards_->sample(index).describe();
}

}  // namespace tern
