#include "tern/learner/losses/losses.h"

#include <cmath>

#include <torch/nn/modules/loss.h>

#include "tern/kernels/check.h"

namespace tern {

Loss label_smoothing_cross_entropy(double eps) {
  TERN_CHECK_VALUE(
      eps >= 0 && eps <= 1,
      "[label_smoothing_cross_entropy] eps is {}; expected a share in 0..1.",
      eps);
  return torch::nn::CrossEntropyLoss(
      torch::nn::CrossEntropyLossOptions().label_smoothing(eps));
}

Loss focal_loss(FocalLossOptions options) {
  TERN_CHECK_VALUE(
      std::isfinite(options.gamma) && options.gamma >= 0,
      "[focal_loss] gamma is {}; expected a finite number >= 0.",
      options.gamma);
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
