#pragma once

#include <cstdint>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

namespace tern::bench {

/// The net of examples/checkerboard.cpp: four 1x1 convolutions, 256 wide.
inline torch::nn::Sequential checkerboard_net() {
  using namespace torch::nn;  // NOLINT: five layers
  Sequential net;
  int64_t in = 2;
  for (int layer = 0; layer < 3; ++layer) {
    net->push_back(Conv2d(Conv2dOptions(in, 256, 1)));
    net->push_back(BatchNorm2d(256));
    net->push_back(ReLU());
    in = 256;
  }
  net->push_back(Conv2d(Conv2dOptions(in, 1, 1)));
  return net;
}

}  // namespace tern::bench
