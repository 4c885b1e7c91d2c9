#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "tern/learner/export/architecture.h"

namespace tern {

struct SimpleCnnOptions {
  /// One per convolution; empty: 3 for all. Odd sizes keep the size at stride
  /// 1.
  std::vector<int64_t> kernel_sizes = {};
  /// One per convolution; empty: 2 for all.
  std::vector<int64_t> strides = {};
  /// Batch normalization after each ReLU but the last.
  bool batch_norm = false;
  /// A ReLU after the last convolution too, as in fastai: the logits are then
  /// never negative.
  bool last_relu = false;
};

/// A small image classifier: convolutions with ReLU, then global average
/// pooling. fastai's simple_cnn, except for `last_relu`.
///
///   auto model = simple_cnn({3, 16, 16, 2});
///   model->forward(torch::rand({64, 3, 28, 28}));   // [64, 2], logits
///
/// \param channels  Channels of the input and after each convolution; the last
///                  is the number of classes.
/// \throws c10::ValueError if `channels` has fewer than two values, one is not
///         positive, or the number of kernel sizes or strides is wrong.
///
/// Initialized as in fastai v1: normal with variance 2 / fan_in (He et al.,
/// "Delving deep into rectifiers", eq. 10), biases 0. Stored channels-last, the
/// layout of the loader's images.
torch::nn::Sequential simple_cnn(
    const std::vector<int64_t>& channels,
    const SimpleCnnOptions& options = {});

/// Builds what the module of `simple_cnn`, a HasArchitecture, describes; see
/// `build_model`.
torch::nn::Sequential build_simple_cnn(const Architecture& architecture);

}  // namespace tern
