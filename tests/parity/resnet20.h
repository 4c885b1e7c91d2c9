#pragma once

#include <array>
#include <string>

#include <torch/nn/functional/padding.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace tern::test {

/// The ResNet-20 for CIFAR-10 of akamaster/pytorch_resnet_cifar10, with its
/// names, as a user would write it to load weights from Python.
struct Block : torch::nn::Module {
  Block(int64_t in, int64_t out) : out(out) {
    const auto conv = [](int64_t from, int64_t to, int64_t stride) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3)
                                   .stride(stride)
                                   .padding(1)
                                   .bias(false));
    };
    conv1 = register_module("conv1", conv(in, out, in == out ? 1 : 2));
    bn1 = register_module("bn1", torch::nn::BatchNorm2d(out));
    conv2 = register_module("conv2", conv(out, out, 1));
    bn2 = register_module("bn2", torch::nn::BatchNorm2d(out));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor shortcut = x;
    if (x.size(1) != out) {
      shortcut = torch::nn::functional::pad(
          x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2),
          torch::nn::functional::PadFuncOptions(
              {0, 0, 0, 0, out / 4, out / 4}));
    }
    const torch::Tensor y = bn1->forward(conv1->forward(x)).relu();
    return (bn2->forward(conv2->forward(y)) + shortcut).relu();
  }
  int64_t out;
  torch::nn::Conv2d conv1 = nullptr, conv2 = nullptr;
  torch::nn::BatchNorm2d bn1 = nullptr, bn2 = nullptr;
};

struct ResNet20Impl : torch::nn::Module {
  ResNet20Impl() {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    for (int64_t layer = 0; layer < 3; ++layer) {
      const int64_t width = int64_t{16} << layer;
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t in = i == 0 && layer > 0 ? width / 2 : width;
        layers[layer]->push_back(Block(in, width));
      }
      register_module("layer" + std::to_string(layer + 1), layers[layer]);
    }
    register_module("linear", linear);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = bn1->forward(conv1->forward(x)).relu();
    for (torch::nn::Sequential& layer : layers) x = layer->forward(x);
    return linear->forward(x.mean({2, 3}));
  }
  torch::nn::Conv2d conv1{
      torch::nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)};
  torch::nn::BatchNorm2d bn1{16};
  std::array<torch::nn::Sequential, 3> layers;
  torch::nn::Linear linear{64, 10};
};
TORCH_MODULE(ResNet20);

}  // namespace tern::test
