#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// What a network for images is without its classifier: stages, each of which
/// halves height and width; the last ones do not if the network is dilated
/// instead (see DilationPlan).
class Backbone {
 public:
  virtual ~Backbone() = default;

  /// Channels after each stage.
  virtual std::vector<int64_t> stage_channels() const = 0;
  /// What stage `index` makes of the stage before, or of the images
  /// [N, in_channels, H, W]: [N, C, H / 2^(index + 1), W / 2^(index + 1)],
  /// rounded up; in a dilated network no smaller than its output stride says.
  virtual torch::Tensor stage(size_t index, const torch::Tensor& x) = 0;

  /// What the last stage gives.
  torch::Tensor features(torch::Tensor x) {
    const size_t count = stage_channels().size();
    for (size_t i = 0; i < count; ++i) x = stage(i, x);
    return x;
  }
  /// What each stage gives, from fine to coarse.
  Tensors stages(torch::Tensor x) {
    Tensors all;
    const size_t count = stage_channels().size();
    for (size_t i = 0; i < count; ++i) all.push_back(x = stage(i, x));
    return all;
  }
};

}  // namespace tern
