#include "tern/learner/losses/losses.h"

#include <cmath>
#include <utility>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/pimpl.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// A module, since Loss takes the values of each sample from one's reduction.
class DiceCELossImpl : public torch::nn::Cloneable<DiceCELossImpl> {
 public:
  explicit DiceCELossImpl(DiceCELossOptions with) : with_(std::move(with)) {}
  void reset() override {}

  /// 0-dim; [N] without reduction.
  torch::Tensor forward(
      const torch::Tensor& pred,
      const torch::Tensor& target) {
    TERN_CHECK_VALUE(
        pred.dim() > 2 && pred.size(1) > 1 && target.dim() == pred.dim() - 1 &&
            target.scalar_type() == torch::kLong,
        "[dice_ce_loss] outputs are {}, targets {}; expected [N, C, ...] with "
        "at least two classes and [N, ...] of kLong. For one class a sample "
        "use cross-entropy.",
        shapes_of({pred}),
        shapes_of({target}));
    if (with_.weight.defined()) with_.weight = with_.weight.to(pred.device());
    const torch::Tensor dice = dice_values(pred, target);
    const bool is_whole =
        !std::holds_alternative<torch::enumtype::kNone>(options.reduction());
    const torch::Tensor ce = torch::cross_entropy_loss(
        pred,
        target,
        with_.weight,
        is_whole ? at::Reduction::Mean : at::Reduction::None,
        with_.ignore_index);
    return with_.lambda_dice * (is_whole ? dice.mean() : dice.mean(1)) +
           with_.lambda_ce * (is_whole ? ce : ce.flatten(1).mean(1));
  }

  torch::nn::CrossEntropyLossOptions options;  // its reduction alone

 private:
  /// [N, C].
  torch::Tensor dice_values(
      const torch::Tensor& pred,
      const torch::Tensor& target) const {
    const auto type =
        pred.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const torch::Tensor known = target.unsqueeze(1) != with_.ignore_index;
    const torch::Tensor p = pred.to(type).softmax(1) * known;
    const torch::Tensor is_class =
        torch::zeros_like(p)
            .scatter_(1, target.unsqueeze(1).where(known, 0), 1)
            .mul_(known);
    const torch::Tensor both = (p * is_class).flatten(2).sum(2);
    const torch::Tensor sizes = (p + is_class).flatten(2).sum(2);
    return 1 - (2 * both + with_.smooth) / (sizes + with_.smooth);
  }

  DiceCELossOptions with_;
};
TORCH_MODULE(DiceCELoss);

}  // namespace

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

Loss dice_ce_loss(DiceCELossOptions options) {
  const auto is_weight = [](double value) {
    return std::isfinite(value) && value >= 0;
  };
  TERN_CHECK_VALUE(
      is_weight(options.lambda_dice) && is_weight(options.lambda_ce) &&
          options.lambda_dice + options.lambda_ce > 0 &&
          is_weight(options.smooth),
      "[dice_ce_loss] lambda_dice is {}, lambda_ce {} and smooth {}; expected "
      "finite numbers >= 0, and a lambda that is more.",
      options.lambda_dice,
      options.lambda_ce,
      options.smooth);
  const int64_t ignored = options.ignore_index;
  Loss loss = DiceCELoss(std::move(options));
  return loss.activation(Activation::softmax).target_is_class(ignored);
}

}  // namespace tern
