#include "tern/learner/loss.h"

#include <algorithm>

#include <c10/util/Type.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/metric.h"
#include "tern/learner/module_names.h"

namespace tern {

namespace detail {

torch::Tensor paired_target(
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  const torch::Tensor paired = in_shape_of("Loss", pred, target);
  const bool is_wider = paired.scalar_type() == torch::kDouble &&
                        pred.scalar_type() != torch::kDouble;
  return is_wider || !paired.is_floating_point() ? paired.to(torch::kFloat)
                                                 : paired;
}

torch::Tensor ClassWeights::on(
    torch::Device device,
    const torch::Tensor& weights) {
  if (!weights.defined() || weights.device() == device) return weights;
  const int64_t version =
      weights.is_inference() ? 0 : static_cast<int64_t>(weights._version());
  const bool is_kept = copy_.defined() && copy_.device() == device &&
                       source_.is_same(weights) && version_ == version;
  if (!is_kept) {
    copy_ = weights.detach().to(device);
    source_ = weights;
    version_ = version;
  }
  return copy_;
}

namespace {

int64_t samples_of(const torch::Tensor& target) {
  return target.dim() == 0 ? 1 : target.size(0);
}

torch::Tensor same_for_all(const torch::Tensor& target, double count) {
  return torch::full(
      {samples_of(target)},
      count,
      torch::dtype(torch::kDouble).device(target.device()));
}

}  // namespace

torch::Tensor class_counts(
    const torch::Tensor& target,
    const torch::Tensor& weights,
    int64_t ignore_index) {
  if (target.is_floating_point()) {
    const int64_t positions =
        target.dim() < 2 ? 1
                         : target.numel() / (target.size(0) * target.size(1));
    return same_for_all(target, static_cast<double>(positions));
  }
  const torch::NoGradGuard no_grad;
  const torch::Tensor classes =
      target.to(torch::kLong).reshape({samples_of(target), -1});
  const torch::Tensor is_counted = classes != ignore_index;
  if (!weights.defined()) return is_counted.sum(1).to(torch::kDouble);
  const torch::Tensor known = classes.clamp(0, weights.numel() - 1);
  return (weights.to(torch::kDouble).take(known) * is_counted).sum(1);
}

torch::Tensor number_counts(const torch::Tensor& target) {
  return same_for_all(
      target,
      static_cast<double>(target.numel()) /
          static_cast<double>(samples_of(target)));
}

}  // namespace detail

torch::Tensor mean_over(const torch::Tensor& sum, const torch::Tensor& counts) {
  const torch::Tensor all = counts.sum();
  return sum / (all + (all == 0)).to(sum.scalar_type());
}

void Loss::check_autocast(torch::Device device) const {
  TORCH_CHECK_VALUE(
      !is_bce_of_probabilities_ || !device.is_cuda(),
      "[Loss] BCELoss is unsafe under autocast on CUDA: a 16-bit sigmoid "
      "rounds to 0 or 1 and the logarithm to infinity. Remove the sigmoid from "
      "the model and use BCEWithLogitsLoss "
      "(binary_cross_entropy_with_logits).");
}

namespace {

// A sum of many 16-bit numbers may overflow in 16 bits.
torch::Tensor in_32_bits(const torch::Tensor& values) {
  return c10::isReducedFloatingType(values.scalar_type())
             ? values.to(torch::kFloat)
             : values;
}

}  // namespace

Loss& Loss::activation(Activation activation) {
  activation_ = activation;
  knows_activation_ = true;
  return *this;
}

Loss& Loss::target_is_class(int64_t ignore_index) {
  target_is_class_ = true;
  ignore_index_ = ignore_index;
  return *this;
}

Loss::ValuesOfAll Loss::of_one(Values values) {
  return [values = std::move(
              values)](const Tensors& outputs, const Tensors& targets) {
    check_one(outputs, targets);
    return values(outputs[0], targets[0]);
  };
}

Loss& Loss::target_is_position() {
  target_is_position_ = true;
  return *this;
}

Loss Loss::mean_of_one(Values values, const Counts& counts) {
  TORCH_CHECK_VALUE(
      values,
      "[Loss::mean_of] the function is empty; pass a function of (pred, "
      "target).");
  return mean_of_all(of_one(std::move(values)), counts);
}

Loss Loss::mean_of_all(ValuesOfAll values, const Counts& counts) {
  TORCH_CHECK_VALUE(
      values,
      "[Loss::mean_of] the function is empty; pass a function of (outputs, "
      "targets).");
  // The analyzer mistakes std::function's copy of the values for a leak.
  Loss loss([values, counts](  // NOLINT(clang-analyzer-cplusplus.*)
                const Tensors& outputs,
                const Tensors& targets) {
    const torch::Tensor all = values(outputs, targets);
    return counts ? mean_over(
                        in_32_bits(all).sum(),
                        counts(outputs, targets).to(torch::kDouble))
                  : all.mean();
  });
  loss.values_ = std::move(values);
  loss.counts_ = counts;
  loss.sums_values_ = loss.divides_single_values_ = !loss.counts_samples();
  return loss;
}

Loss& Loss::count_by(Counts counts) {
  TORCH_CHECK_VALUE(
      counts,
      "[Loss::count_by] the function is empty; pass a function of (outputs, "
      "targets).");
  counts_ = std::move(counts);
  sums_values_ = false;
  return *this;
}

torch::Tensor Loss::counts(const Tensors& outputs, const Tensors& targets)
    const {
  torch::Tensor counts;
  if (counts_) counts = counts_(outputs, targets);
  if (counts.defined()) return counts.to(torch::kDouble);
  const Tensors& known = targets.empty() ? outputs : targets;
  TORCH_CHECK_VALUE(
      !known.empty(),
      "[Loss::counts] there is neither an output nor a target; expected at "
      "least one, with the number of samples as its first dimension.");
  return detail::same_for_all(known[0], 1);
}

double Loss::count(const Tensors& outputs, const Tensors& targets) const {
  return *counts(outputs, targets).sum().cpu().const_data_ptr<double>();
}

torch::Tensor Loss::values_of(const Tensors& outputs, const Tensors& targets)
    const {
  TORCH_CHECK_VALUE(
      values_,
      "[Loss::per_sample] this loss returns one number for the whole batch; "
      "expected a loss module of LibTorch, or Loss::mean_of(values).");
  torch::Tensor values = values_(outputs, targets);
  TERN_CHECK_VALUE(
      values.dim() > 0 && values.size(0) == outputs[0].size(0),
      "[Loss::per_sample] the loss has values of shape [{}] for {} "
      "samples; expected [N, ...].",
      fmt::join(values.sizes(), ", "),
      outputs[0].size(0));
  return values;
}

torch::Tensor Loss::per_sample(const Tensors& outputs, const Tensors& targets)
    const {
  torch::Tensor values = values_of(outputs, targets);
  if (values.dim() == 1 && !divides_single_values_) return values;
  values = in_32_bits(values);
  values = values.dim() == 1 ? values.unsqueeze(1) : values.flatten(1);
  torch::Tensor counts;
  if (counts_ && sums_values_) counts = counts_(outputs, targets);
  if (!counts.defined()) return values.mean(1);
  counts = counts.to(values.device());
  return values.sum(1) / (counts + (counts == 0)).to(values.scalar_type());
}

torch::Tensor Loss::sum_per_sample(
    const Tensors& outputs,
    const Tensors& targets) const {
  torch::Tensor values = in_32_bits(values_of(outputs, targets));
  torch::Tensor counts;
  if (counts_) counts = counts_(outputs, targets);
  if (values.dim() > 1) {
    values = values.flatten(1);
    values = counts.defined() && sums_values_ ? values.sum(1) : values.mean(1);
  }
  if (!counts.defined() || sums_values_) return values;
  return values * counts.to(values.scalar_type());
}

Loss Loss::for_targets(
    const Tensors& targets,
    const std::vector<OutputInfo>& outputs) {
  const TargetKind kind =
      outputs.empty() ? TargetKind::number : outputs[0].kind;
  TERN_CHECK_VALUE(
      targets.size() == 1,
      "[Loss] no loss was given and the batch has {} targets; expected one "
      "target. Set LearnerOptions::loss{}.",
      targets.size(),
      kind == TargetKind::boxes    ? ", such as retinanet_loss()"
      : kind == TargetKind::points ? ", such as points_loss()"
                                   : "");
  if (targets[0].scalar_type() == torch::kLong) {
    return torch::nn::CrossEntropyLoss();
  }
  TERN_CHECK_VALUE(
      targets[0].is_floating_point(),
      "[Loss] no loss was given and the targets are k{}; expected kLong for "
      "classes or floating-point numbers. Convert them with .to(torch::kLong) "
      "in the dataset, or set LearnerOptions::loss.",
      c10::toString(targets[0].scalar_type()));
  if (kind == TargetKind::multi_category) {
    return torch::nn::BCEWithLogitsLoss();
  }
  return torch::nn::MSELoss();
}

std::string Loss::class_name(const std::type_info& module) {
  return module_class_name(c10::demangle(module.name()));
}

void Loss::check_one(const Tensors& outputs, const Tensors& targets) {
  TERN_CHECK_VALUE(
      outputs.size() == 1 && targets.size() == 1,
      "[Loss] the model returned {} outputs and the batch has {} targets; "
      "expected one of each for a loss of (pred, target). Use a loss of (const "
      "Tensors& outputs, const Tensors& targets).",
      outputs.size(),
      targets.size());
}

torch::Tensor Loss::operator()(const Tensors& outputs, const Tensors& targets)
    const {
  torch::Tensor loss = function_(outputs, targets);
  TERN_CHECK_VALUE(
      loss.defined() && loss.numel() == 1,
      "[Loss] the loss has shape [{}]; expected a single number. Reduce it, "
      "for example with .mean().",
      loss.defined() ? fmt::format("{}", fmt::join(loss.sizes(), ", "))
                     : "undefined");
  return loss.dim() == 0 ? loss : loss.squeeze();
}

void Loss::check_class_indices(
    const Tensors& outputs,
    const Tensors& host_targets) const {
  if (!target_is_class_ || outputs.empty() || host_targets.empty()) return;
  const torch::Tensor& target = host_targets[0];
  if (!target.is_cpu() || target.scalar_type() != torch::kLong) return;
  if (outputs[0].dim() < 2) return;
  const int64_t classes = outputs[0].size(1);
  const torch::Tensor flat = target.contiguous();
  const int64_t* const first = flat.const_data_ptr<int64_t>();
  const int64_t* const last = first + flat.numel();
  const auto is_no_class = [classes, ignored = ignore_index_](int64_t index) {
    return (static_cast<uint64_t>(index) >= static_cast<uint64_t>(classes)) &
           (index != ignored);
  };
  // Masks have one class per pixel, and a loop without branches is faster.
  bool is_wrong = false;
  for (const int64_t* at = first; at != last; ++at) {
    is_wrong |= is_no_class(*at);
  }
  if (!is_wrong) return;
  const int64_t* const wrong = std::find_if(first, last, is_no_class);
  TORCH_CHECK_INDEX(
      false,
      fmt::format(
          "[Loss] target {} of the batch is class {}, but the model has {} "
          "outputs; expected 0 to {}. Give the model an output for each class, "
          "or correct the labels.",
          wrong - first,
          *wrong,
          classes,
          classes - 1));
}

torch::Tensor activate(const torch::Tensor& pred, Activation activation) {
  torch::Tensor x = pred.to(torch::kFloat);
  switch (activation) {
    case Activation::none:
    case Activation::detections:  // applies to all outputs together
      return x;
    case Activation::softmax:
      return x.softmax(1);
    case Activation::sigmoid:
      return x.sigmoid();
    case Activation::exp:
      return x.exp();
  }
  return x;
}

}  // namespace tern
