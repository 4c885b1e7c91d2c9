#pragma once

#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/learner/weights/lora.h"

namespace tern {

class Learner;

/// During its lifetime, a Learner's 16-bit model contains its fp32 master
/// weights, and the adapters of `add_lora` are merged. For exports.
class Fp32Weights {
 public:
  explicit Fp32Weights(Learner& learn);
  ~Fp32Weights();
  Fp32Weights(const Fp32Weights&) = delete;
  Fp32Weights& operator=(const Fp32Weights&) = delete;

 private:
  MergedLora merged_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

}  // namespace tern
