#include "tern/learner/losses/label_smoothing.h"

#include <fmt/format.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

namespace tern {

Loss label_smoothing_cross_entropy(double eps) {
  TORCH_CHECK_VALUE(
      eps >= 0 && eps <= 1,
      fmt::format(
          "[label_smoothing_cross_entropy] eps is {}; expected a share in "
          "0..1.",
          eps));
  return torch::nn::CrossEntropyLoss(
      torch::nn::CrossEntropyLossOptions().label_smoothing(eps));
}

}  // namespace tern
