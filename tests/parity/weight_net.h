#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace tern::test {

/// The class Net of oracle/weight_files.py: tensors of its own and submodules.
struct WeightNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return head->forward(body->forward(x * scale - mean).flatten(1));
  }

  torch::nn::Sequential body = register_module(
      "body",
      torch::nn::Sequential(
          torch::nn::Conv2d(3, 4, 3),
          torch::nn::BatchNorm2d(4),
          torch::nn::ReLU()));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 2));
  torch::Tensor mean = register_buffer("mean", torch::zeros({1}));
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};
TORCH_MODULE(WeightNet);

}  // namespace tern::test
