#include "tern/learner/losses/focal.h"

#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>

namespace tern {

Loss focal_loss(FocalLossOptions options) {
  TORCH_CHECK_VALUE(
      std::isfinite(options.gamma) && options.gamma >= 0,
      fmt::format(
          "[focal_loss] gamma is {}; expected a finite number >= 0.",
          options.gamma));
  Loss loss = Loss::mean_of([options](
                                const torch::Tensor& pred,
                                const torch::Tensor& target) mutable {
    torch::Tensor& weight = options.weight;
    // Kept there: a copy for each batch would wait for the device.
    if (weight.defined()) weight = weight.to(pred.device());
    const torch::Tensor ce =
        torch::cross_entropy_loss(pred, target, weight, at::Reduction::None);
    return (1 - torch::exp(-ce)).pow(options.gamma) * ce;
  });
  return loss.activation(Activation::softmax).target_is_class();
}

}  // namespace tern
