#include "tern/learner/losses/losses.h"

#include <cmath>
#include <limits>
#include <utility>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/pimpl.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr int64_t kIgnored = -100;  // cross-entropy's default

// Moves `weights` to the device of `target` and keeps them there, because a
// copy in each batch would synchronize with the device.
void move_to(torch::Tensor& weights, const torch::Tensor& target) {
  if (weights.defined()) weights = weights.to(target.device());
}

// A module, because Loss computes per-sample losses by changing a module's
// reduction.
class DiceCELossImpl : public torch::nn::Cloneable<DiceCELossImpl> {
 public:
  explicit DiceCELossImpl(DiceCELossOptions with) : with_(std::move(with)) {}
  void reset() override {}

  /// 0-dim; [N] without reduction, where each value is the mean over a sample's
  /// pixels.
  torch::Tensor forward(
      const torch::Tensor& pred,
      const torch::Tensor& target) {
    TERN_CHECK_VALUE(
        pred.dim() > 2 && pred.size(1) > 1 && target.dim() == pred.dim() - 1 &&
            target.scalar_type() == torch::kLong,
        "[dice_ce_loss] outputs are {}, targets {}; expected [N, C, ...] with "
        "at least two classes and [N, ...] of kLong. For one class per sample "
        "use cross-entropy.",
        shapes_of({pred}),
        shapes_of({target}));
    move_to(with_.weight, target);
    const auto type =
        pred.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const torch::Tensor logits = pred.to(type);
    const torch::Tensor dice = dice_values(logits, target).mean(1);
    const bool is_whole =
        !std::holds_alternative<torch::enumtype::kNone>(options.reduction());
    const torch::Tensor ce = torch::cross_entropy_loss(
        logits,
        target,
        with_.weight,
        is_whole ? at::Reduction::Sum : at::Reduction::None,
        with_.ignore_index);
    const torch::Tensor counts =
        detail::class_counts(target, with_.weight, with_.ignore_index);
    if (is_whole) {
      return with_.lambda_dice * mean_over(dice.sum(), counts > 0) +
             with_.lambda_ce * mean_over(ce, counts);
    }
    return with_.lambda_dice * dice + with_.lambda_ce * ce.flatten(1).sum(1) /
                                          (counts + (counts == 0)).to(type);
  }

  torch::nn::CrossEntropyLossOptions options;  // only its reduction is used

 private:
  /// [N, C]; 0 without pixels to compare.
  torch::Tensor dice_values(
      const torch::Tensor& pred,
      const torch::Tensor& target) const {
    const torch::Tensor known = target.unsqueeze(1) != with_.ignore_index;
    const torch::Tensor p = pred.softmax(1) * known;
    const torch::Tensor is_class =
        torch::zeros_like(p)
            .scatter_(1, target.unsqueeze(1).where(known, 0), 1)
            .mul_(known);
    const torch::Tensor both =
        2 * (p * is_class).flatten(2).sum(2) + with_.smooth;
    const torch::Tensor sizes = (p + is_class).flatten(2).sum(2) + with_.smooth;
    const torch::Tensor is_empty = sizes == 0;
    return 1 - (both + is_empty) / (sizes + is_empty);
  }

  DiceCELossOptions with_;
};
TORCH_MODULE(DiceCELoss);

}  // namespace

Loss label_smoothing_cross_entropy(double eps) {
  TERN_CHECK_VALUE(
      eps >= 0 && eps <= 1,
      "[label_smoothing_cross_entropy] eps is {}; expected a number from 0 to "
      "1.",
      eps);
  return torch::nn::CrossEntropyLoss(
      torch::nn::CrossEntropyLossOptions().label_smoothing(eps));
}

Loss focal_loss(FocalLossOptions options) {
  TERN_CHECK_VALUE(
      std::isfinite(options.gamma) && options.gamma >= 0,
      "[focal_loss] gamma is {}; expected a finite number >= 0.",
      options.gamma);
  const auto values = [options](
                          const torch::Tensor& pred,
                          const torch::Tensor& target) mutable {
    move_to(options.weight, target);
    const torch::Tensor ce = torch::cross_entropy_loss(
        pred,
        target,
        options.weight,
        at::Reduction::None);
    // A power below 1 has an infinite gradient at 0, which is the value for
    // ignored targets.
    const torch::Tensor wrong =
        (1 - torch::exp(-ce)).clamp_min(std::numeric_limits<float>::min());
    return wrong.pow(options.gamma) * ce;
  };
  const auto counts = [](const Tensors&, const Tensors& targets) {
    return detail::class_counts(targets.at(0), {}, kIgnored);
  };
  return Loss::mean_of(values, counts)
      .activation(Activation::softmax)
      .target_is_class(kIgnored);
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
      "finite numbers >= 0, and at least one lambda above 0.",
      options.lambda_dice,
      options.lambda_ce,
      options.smooth);
  const auto counts = [options, weights = detail::ClassWeights()](
                          const Tensors&,
                          const Tensors& targets) mutable {
    const torch::Tensor& target = targets.at(0);
    torch::Tensor pixels = detail::class_counts(
        target,
        weights.on(target.device(), options.weight),
        options.ignore_index);
    return options.lambda_ce > 0 ? pixels : pixels > 0;
  };
  const int64_t ignored = options.ignore_index;
  Loss loss = DiceCELoss(std::move(options));
  return loss.count_by(counts)
      .activation(Activation::softmax)
      .target_is_class(ignored);
}

Loss points_loss() {
  const auto check = [](const Tensors& outputs, const Tensors& targets) {
    TERN_CHECK_VALUE(
        outputs.size() == 1 && targets.size() == 2 && outputs[0].dim() == 3 &&
            outputs[0].size(2) == 2 &&
            outputs[0].sizes() == targets[0].sizes() &&
            targets[1].sizes() == targets[0].sizes().slice(0, 2),
        "[points_loss] the outputs are {}, the targets {}; expected points [N, "
        "P, 2] for both, and the visibility of each target point, [N, P]. Set "
        "HeadOptions::points, or reshape the model's output.",
        shapes_of(outputs),
        shapes_of(targets));
  };
  const auto distances =
      [check](const Tensors& outputs, const Tensors& targets) {
        check(outputs, targets);
        const auto type = outputs[0].scalar_type() == torch::kDouble
                              ? torch::kDouble
                              : torch::kFloat;
        // Uses `where` instead of a product, because an invisible point may
        // have any coordinates, even NaN.
        const torch::Tensor all =
            (outputs[0].to(type) - targets[0]).abs().mean(2);
        return torch::where(targets[1], all, torch::zeros_like(all));
      };
  const auto visible = [](const Tensors&, const Tensors& targets) {
    return targets.at(1).sum(1);
  };
  return Loss::mean_of(distances, visible)
      .target_is_position()
      .activation(Activation::none);
}

}  // namespace tern
