#include "tern/data/data_bunch.h"

#include <cstdlib>

#include "tern/kernels/check.h"
#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/load_cuda.h"

namespace tern {

const char* to_string(Split split) {
  constexpr const char* kNames[] = {"train", "valid", "test"};
  return kNames[static_cast<size_t>(split)];
}

BatchTransform normalize(std::vector<double> mean, std::vector<double> stddev) {
  TERN_CHECK_VALUE(
      !mean.empty() && mean.size() == stddev.size(),
      "[normalize] mean has {} values and stddev has {}; expected one value "
      "per channel in both.",
      mean.size(),
      stddev.size());
  return [mean = std::move(mean), stddev = std::move(stddev)](
             Batch& batch,
             const BatchTransformContext& context) {
    torch::Tensor& images = batch.inputs.at(0);
    if (images.scalar_type() == torch::kByte && !context.keeps_bytes) {
      images = normalize_images(images, mean, stddev, context.dtype);
    }
  };
}

const DataLoader& DataBunch::loader(Split split) const {
  const auto& loader = split == Split::train   ? train
                       : split == Split::valid ? valid
                                               : test;
  TERN_CHECK_VALUE(
      loader,
      "[DataBunch] there is no {} loader; expected one. Set DataBunch::{} "
      "first.",
      to_string(split),
      to_string(split));
  return *loader;
}

torch::Device DataBunch::default_device() {
  if (!load_cuda()) return torch::kCPU;
  const char* const text = std::getenv("LOCAL_RANK");
  return {torch::kCUDA, static_cast<int8_t>(text ? std::atoi(text) : 0)};
}

DataBunch DataBunch::create(
    std::shared_ptr<const Dataset> train,
    std::shared_ptr<const Dataset> valid,
    DataLoaderOptions options,
    std::shared_ptr<const Dataset> test) {
  DataBunch data;
  DataLoaderOptions train_options = options;
  train_options.training = true;
  train_options.shuffle = true;
  train_options.drop_last = true;
  data.train = std::make_shared<DataLoader>(std::move(train), train_options);
  options.shuffle = options.drop_last = options.training = false;
  options.sampler = nullptr;
  if (valid)
    data.valid = std::make_shared<DataLoader>(std::move(valid), options);
  if (test) data.test = std::make_shared<DataLoader>(std::move(test), options);
  return data;
}

}  // namespace tern
