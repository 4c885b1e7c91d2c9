#include "tern/vision/models/cnn/densenet.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

torch::nn::Conv2d
dense_conv(int64_t in, int64_t out, int64_t kernel_size, int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel_size)
                               .stride(stride)
                               .padding(kernel_size / 2)
                               .bias(false));
}

torch::nn::ReLU relu_in_place() {
  return torch::nn::ReLU(torch::nn::ReLUOptions(true));
}

// BatchNorm, ReLU, 1x1 convolution; BatchNorm, ReLU, 3x3 convolution.
Layers dense_layer(int64_t in, int64_t growth) {
  const int64_t middle = 4 * growth;
  Layers layer;
  layer->push_back("norm1", torch::nn::BatchNorm2d(in));
  layer->push_back("relu1", relu_in_place());
  layer->push_back("conv1", dense_conv(in, middle, 1));
  layer->push_back("norm2", torch::nn::BatchNorm2d(middle));
  layer->push_back("relu2", relu_in_place());
  layer->push_back("conv2", dense_conv(middle, growth, 3));
  return layer;
}

// Each layer appends `growth` channels to its input.
class DenseBlockImpl : public torch::nn::Cloneable<DenseBlockImpl> {
 public:
  DenseBlockImpl(int64_t in, int64_t count, int64_t growth)
      : in_(in), count_(count), growth_(growth) {
    reset();
  }

  void reset() override {
    layers_.clear();
    for (int64_t i = 0; i < count_; ++i) {
      layers_.push_back(register_module(
          fmt::format("denselayer{}", i + 1),
          dense_layer(in_ + i * growth_, growth_)));
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    for (Layers& layer : layers_) x = torch::cat({x, layer->forward(x)}, 1);
    return x;
  }

 private:
  int64_t in_, count_, growth_;
  std::vector<Layers> layers_;
};
TORCH_MODULE(DenseBlock);

// Halves channels, height and width.
Layers transition(int64_t in) {
  Layers layers;
  layers->push_back("norm", torch::nn::BatchNorm2d(in));
  layers->push_back("relu", relu_in_place());
  layers->push_back("conv", dense_conv(in, in / 2, 1));
  layers->push_back("pool", torch::nn::AvgPool2d(2));
  return layers;
}

}  // namespace

DenseNetImpl::DenseNetImpl(
    const DenseNetShape& shape,
    const DenseNetOptions& options)
    : shape_(shape), options_(options) {
  check_network("DenseNet", options.num_classes, options.in_channels);
  check_sizes("DenseNet", "blocks", shape.blocks);
  TERN_CHECK_VALUE(
      shape.growth > 0 && shape.growth <= 1000,
      "[DenseNet] growth is {}; expected 1 to 1000.",
      shape.growth);
  reset();
}

void DenseNetImpl::reset() {
  clear(/*least_side=*/29);
  int64_t channels = 2 * shape_.growth;
  const auto conv = dense_conv(options_.in_channels, channels, 7, 2);
  const auto pool =
      torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1));
  add(conv, channels, /*stride=*/2, "conv0");
  add(torch::nn::BatchNorm2d(channels), channels, 1, "norm0");
  add(relu_in_place(), channels, 1, "relu0");
  add(pool, channels, /*stride=*/2, "pool0");
  for (size_t i = 0; i < shape_.blocks.size(); ++i) {
    if (i > 0) {
      const Layers smaller = transition(channels);
      channels /= 2;
      add(smaller, channels, /*stride=*/2, fmt::format("transition{}", i));
    }
    const DenseBlock block(channels, shape_.blocks[i], shape_.growth);
    channels += shape_.blocks[i] * shape_.growth;
    add(block, channels, 1, fmt::format("denseblock{}", i + 1));
  }
  add(torch::nn::BatchNorm2d(channels), channels, 1, "norm5");
  add(relu_in_place(), channels, 1, "relu5");
  register_module("features", features_);
  init_kaiming(*features_);
  if (options_.num_classes > 0) {
    torch::nn::Linear linear(channels, options_.num_classes);
    torch::nn::init::zeros_(linear->bias);
    classifier_ = torch::nn::AnyModule(register_module("classifier", linear));
  }
  store_channels_last(*this);
}

DenseNet densenet121(const DenseNetOptions& options) {
  return named<DenseNet>(
      "densenet121",
      options,
      DenseNetShape{{6, 12, 24, 16}});
}

}  // namespace tern
