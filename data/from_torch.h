#pragma once

#include <memory>
#include <utility>

#include <torch/data/example.h>

#include "tern/data/dataset.h"

namespace tern {

namespace detail {

template <class Source>
class TorchDataset final : public Dataset {
 public:
  explicit TorchDataset(Source source)
      : source_(std::make_shared<Source>(std::move(source))) {
    TORCH_CHECK_VALUE(
        source_->size().has_value(),
        "[from_torch] the dataset has no size; expected size() to return a "
        "number.");
  }

  int64_t size() const override {
    return static_cast<int64_t>(*source_->size());
  }

  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    std::vector<Batch> samples;
    samples.reserve(indices.size());
    for (const int64_t index : indices) {
      const auto example = source_->get(static_cast<size_t>(index));
      Batch& sample = samples.emplace_back();
      sample.inputs.push_back(example.data.unsqueeze(0));
      if constexpr (requires { example.target.unsqueeze(0); }) {
        sample.targets.push_back(example.target.unsqueeze(0));
      }
    }
    return collate(samples, context);
  }

 private:
  std::shared_ptr<Source> source_;  // LibTorch's `get` is not const
};

}  // namespace detail

/// Wraps a torch::data dataset of single examples as a Dataset.
///
///   auto train = from_torch(torch::data::datasets::MNIST(path));
///
/// \param source  Has a `get(size_t)` that returns an `Example<>` or a
///                `TensorExample`, and a known `size()`. `get` is called from
///                worker threads and must be thread-safe.
/// \throws c10::ValueError if its size is unknown, or, in `get_batch`, if
///         examples have different shapes.
template <class Source>
std::shared_ptr<Dataset> from_torch(Source source) {
  return std::make_shared<detail::TorchDataset<Source>>(std::move(source));
}

}  // namespace tern
