#include "tern/vision/models/cnn/simple_cnn.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/data/formats/json.h"
#include "tern/kernels/check.h"

namespace tern {
namespace {

/// A Sequential that stores the architecture from which it was built.
class SimpleCnnImpl : public torch::nn::SequentialImpl, public HasArchitecture {
 public:
  explicit SimpleCnnImpl(Architecture architecture)
      : architecture_(std::move(architecture)) {}

  Architecture architecture() const override { return architecture_; }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device) const override {
    auto copy = std::make_shared<SimpleCnnImpl>(architecture_);
    for (const torch::nn::AnyModule& module : *this) {
      copy->push_back(module.clone(device));
    }
    return copy;
  }

 private:
  Architecture architecture_;
};

JsonFields fields_of(
    std::vector<int64_t>& channels,
    SimpleCnnOptions& options) {
  return {
      {"channels", &channels},
      {"kernel_sizes", &options.kernel_sizes},
      {"strides", &options.strides},
      {"batch_norm", &options.batch_norm},
      {"last_relu", &options.last_relu}};
}

/// Returns the values for `count` convolutions; all are `otherwise` if none are
/// given.
std::vector<int64_t> values_for(
    const char* name,
    const std::vector<int64_t>& given,
    size_t count,
    int64_t otherwise) {
  if (given.empty()) return std::vector<int64_t>(count, otherwise);
  TERN_CHECK_VALUE(
      given.size() == count && std::ranges::min(given) > 0,
      "[simple_cnn] {} is {{{}}}; expected {} positive values, one for "
      "each convolution, or none.",
      name,
      fmt::join(given, ", "),
      count);
  return given;
}

torch::nn::Conv2d
convolution(int64_t in, int64_t out, int64_t kernel_size, int64_t stride) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(in, out, kernel_size)
                             .stride(stride)
                             .padding((kernel_size - 1) / 2));
  torch::nn::init::kaiming_normal_(conv->weight);
  torch::nn::init::zeros_(conv->bias);
  conv->weight.set_data(
      conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  return conv;
}

}  // namespace

torch::nn::Sequential simple_cnn(
    const std::vector<int64_t>& channels,
    const SimpleCnnOptions& options) {
  TERN_CHECK_VALUE(
      channels.size() >= 2 && std::ranges::min(channels) > 0,
      "[simple_cnn] channels is {{{}}}; expected two positive values or more: "
      "the channels of the image, then the channels after each convolution.",
      fmt::join(channels, ", "));
  const size_t count = channels.size() - 1;
  const auto kernel_sizes =
      values_for("kernel_sizes", options.kernel_sizes, count, 3);
  const auto strides = values_for("strides", options.strides, count, 2);
  auto given = channels;
  auto given_options = options;
  const std::shared_ptr<torch::nn::SequentialImpl> named =
      std::make_shared<SimpleCnnImpl>(
          Architecture{"simple_cnn", to_json(fields_of(given, given_options))});
  torch::nn::Sequential model(named);
  for (size_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    model->push_back(
        convolution(channels[i], channels[i + 1], kernel_sizes[i], strides[i]));
    if (!is_last || options.last_relu) {
      model->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    }
    if (options.batch_norm && !is_last) {
      torch::nn::BatchNorm2d norm(channels[i + 1]);
      torch::nn::init::constant_(norm->bias, 1e-3);  // fastai's
      model->push_back(norm);
    }
  }
  model->push_back(torch::nn::AdaptiveAvgPool2d(1));
  model->push_back(torch::nn::Flatten());
  return model;
}

torch::nn::Sequential build_simple_cnn(const Architecture& architecture) {
  std::vector<int64_t> channels;
  SimpleCnnOptions options;
  read_json(
      architecture.options,
      fields_of(channels, options),
      "the options of " + architecture.name);
  return simple_cnn(channels, options);
}

}  // namespace tern
