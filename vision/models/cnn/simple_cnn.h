#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "tern/learner/export/architecture.h"

namespace tern {

struct SimpleCnnOptions {
  /// Kernel size of each convolution; if empty, 3 for all. An odd kernel keeps
  /// height and width at stride 1.
  std::vector<int64_t> kernel_sizes = {};
  /// Stride of each convolution; if empty, 2 for all.
  std::vector<int64_t> strides = {};
  /// BatchNorm after each ReLU except the last.
  bool batch_norm = false;
  /// Also applies a ReLU after the last convolution, as fastai does; the logits
  /// are then never negative.
  bool last_relu = false;
};

/// Creates a small image classifier: convolutions with ReLU, then global
/// average pooling. Same as fastai's simple_cnn if `last_relu` is set; by
/// default the last convolution has no ReLU.
///
///   auto model = simple_cnn({3, 16, 16, 2});
///   model->forward(torch::rand({64, 3, 28, 28}));   // [64, 2], logits
///
/// \param channels  Channels of the input and after each convolution; the last
///                  value is the number of classes.
/// \throws c10::ValueError if `channels` has fewer than two values or a value
///         that is not positive, or if the number of kernel sizes or strides
///         does not match.
///
/// Initialized as in fastai v1: weights normal with variance 2 / fan_in (He et
/// al., "Delving deep into rectifiers", eq. 10), biases 0. Weights are stored
/// channels-last, like the images from the data loader.
torch::nn::Sequential simple_cnn(
    const std::vector<int64_t>& channels,
    const SimpleCnnOptions& options = {});

/// Builds the network that a module from `simple_cnn` describes by its
/// `architecture()`; see `build_model`.
torch::nn::Sequential build_simple_cnn(const Architecture& architecture);

}  // namespace tern
