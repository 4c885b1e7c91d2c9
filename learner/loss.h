#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <variant>

#include <torch/nn/modules/loss.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/output_info.h"

namespace tern {

namespace detail {

// The target as losses that compare number with number want it: in the shape of
// the prediction, from which it may differ in dimensions of size 1 alone (else
// [N, 1] and [N] would be compared as N x N), and floating.
torch::Tensor paired_target(
    const torch::Tensor& pred,
    const torch::Tensor& target);

template <class Impl>
concept ComparesNumbers =
    std::same_as<Impl, torch::nn::MSELossImpl> ||
    std::same_as<Impl, torch::nn::L1LossImpl> ||
    std::same_as<Impl, torch::nn::SmoothL1LossImpl> ||
    std::same_as<Impl, torch::nn::HuberLossImpl> ||
    std::same_as<Impl, torch::nn::BCELossImpl> ||
    std::same_as<Impl, torch::nn::BCEWithLogitsLossImpl> ||
    std::same_as<Impl, torch::nn::SoftMarginLossImpl> ||
    std::same_as<Impl, torch::nn::PoissonNLLLossImpl>;

template <class Holder>
torch::Tensor
forward(Holder& loss, const torch::Tensor& pred, const torch::Tensor& target) {
  if constexpr (ComparesNumbers<std::remove_cvref_t<decltype(*loss)>>) {
    return loss->forward(pred, paired_target(pred, target));
  } else {
    return loss->forward(pred, target);
  }
}

// Losses of class numbers, whose mean leaves some targets out and weighs the
// others by their class.
template <class Impl>
concept ComparesClasses = std::same_as<Impl, torch::nn::CrossEntropyLossImpl> ||
                          std::same_as<Impl, torch::nn::NLLLossImpl>;

// Those whose mean is over all numbers of the target, not over samples.
template <class Impl>
concept CountsNumbers =
    ComparesNumbers<Impl> || std::same_as<Impl, torch::nn::KLDivLossImpl> ||
    std::same_as<Impl, torch::nn::HingeEmbeddingLossImpl>;

// The weights of classes where the targets are. A copy is made once: one for
// each batch would wait for the device.
class ClassWeights {
 public:
  // \return undefined for undefined weights, which are all 1.
  torch::Tensor on(torch::Device device, const torch::Tensor& weights);

 private:
  torch::Tensor source_, copy_;
  int64_t version_ = -1;
};

// What cross-entropy counts of each sample, [N] kDouble: the weights of the
// classes of its targets, without ignored ones. Of probabilities of classes
// [N, C, ...] each position counts 1.
torch::Tensor class_counts(
    const torch::Tensor& target,
    const torch::Tensor& weights,
    int64_t ignore_index);

// The numbers of each sample, [N] kDouble.
torch::Tensor number_counts(const torch::Tensor& target);

template <class Holder>
bool is_mean(Holder& loss) {
  return std::holds_alternative<torch::enumtype::kMean>(
      loss->options.reduction());
}

// A loss module's values before they are added up. The module itself, for its
// weights may move to another device; the reduction is put back at once.
template <class Holder>
auto without_reduction(Holder loss) {
  return
      [loss](const torch::Tensor& pred, const torch::Tensor& target) mutable {
        auto reduction = loss->options.reduction();
        loss->options.reduction(torch::kNone);
        try {
          torch::Tensor values = forward(loss, pred, target);
          loss->options.reduction(reduction);
          return values;
        } catch (...) {
          loss->options.reduction(reduction);
          throw;
        }
      };
}

}  // namespace detail

/// A loss function, as a value.
///
///   Loss(torch::nn::CrossEntropyLoss())
///   Loss([](Tensor pred, Tensor target) {
///     return (pred - target).abs().mean();
///   })
///   Loss([](const Tensors& outputs, const Tensors& targets) { ... })
///
/// A Loss made from nothing chooses itself at the first batch: cross-entropy
/// for kLong targets, mean squared error for floating ones. Loss modules that
/// compare number with number take a target of [N] beside outputs of [N, 1].
class Loss {
 public:
  /// A number for each sample or pixel from (pred, target).
  using Values = std::function<
      torch::Tensor(const torch::Tensor& pred, const torch::Tensor& target)>;
  /// The same from all outputs and all targets.
  using ValuesOfAll = std::function<
      torch::Tensor(const Tensors& outputs, const Tensors& targets)>;
  /// How much of each sample counts in the loss, which is a mean: [N], on the
  /// device of the targets. Those may be in host memory and the outputs on a
  /// GPU.
  using Counts = std::function<
      torch::Tensor(const Tensors& outputs, const Tensors& targets)>;

  Loss() = default;

  /// Any loss module with forward(pred, target).
  template <class Impl>
    requires requires(Impl& loss, torch::Tensor t) {
      { loss.forward(t, t) } -> std::convertible_to<torch::Tensor>;
    }
  Loss(torch::nn::ModuleHolder<Impl> loss)  // NOLINT: implicit on purpose
      : Loss([loss](
                 const torch::Tensor& pred,
                 const torch::Tensor& target) mutable {
          return detail::forward(loss, pred, target);
        }) {
    name_ = class_name(typeid(Impl));
    if constexpr (requires { loss->options.reduction(torch::kNone); }) {
      values_ = of_one(detail::without_reduction(loss));
    }
    if constexpr (detail::ComparesClasses<Impl>) {
      counts_ = [loss, weights = detail::ClassWeights()](
                    const Tensors&,
                    const Tensors& targets) mutable {
        if (!detail::is_mean(loss)) return torch::Tensor();
        const torch::Tensor& target = targets.at(0);
        return detail::class_counts(
            target,
            weights.on(target.device(), loss->weight),
            loss->options.ignore_index());
      };
      sums_values_ = true;
    } else if constexpr (detail::CountsNumbers<Impl>) {
      counts_ = [loss](const Tensors&, const Tensors& targets) mutable {
        return detail::is_mean(loss) ? detail::number_counts(targets.at(0))
                                     : torch::Tensor();
      };
      sums_values_ = true;
    }
    if constexpr (std::same_as<Impl, torch::nn::CrossEntropyLossImpl>) {
      activation(Activation::softmax);
      target_is_class(loss->options.ignore_index());
    } else if constexpr (std::same_as<Impl, torch::nn::NLLLossImpl>) {
      activation(Activation::exp);
      target_is_class(loss->options.ignore_index());
    } else if constexpr (
        std::same_as<Impl, torch::nn::BCEWithLogitsLossImpl> ||
        std::same_as<Impl, torch::nn::MultiLabelSoftMarginLossImpl>) {
      activation(Activation::sigmoid);
    }
    is_bce_of_probabilities_ = std::same_as<Impl, torch::nn::BCELossImpl>;
    knows_activation_ |= is_bce_of_probabilities_;
  }

  template <class F>
    requires(!torch::detail::is_module_holder<F>::value) &&
            std::is_invocable_r_v<
                torch::Tensor,
                F&,
                torch::Tensor,
                torch::Tensor>
  Loss(F loss)  // NOLINT
      : function_([loss = std::move(loss)](
                      const Tensors& outputs,
                      const Tensors& targets) mutable {
          check_one(outputs, targets);
          return loss(outputs[0], targets[0]);
        }) {}

  template <class F>
    requires(!torch::detail::is_module_holder<F>::value) &&
            std::is_invocable_r_v<
                torch::Tensor,
                F&,
                const Tensors&,
                const Tensors&>
  Loss(F loss)  // NOLINT
      : function_(std::move(loss)) {}

  template <class F>
    requires(
        !std::derived_from<F, Loss> &&
        !torch::detail::is_module_holder<F>::value &&
        !std::is_invocable_v<F&, torch::Tensor, torch::Tensor> &&
        !std::is_invocable_v<F&, const Tensors&, const Tensors&>)
  Loss(const F&) {  // NOLINT
    static_assert(
        !sizeof(F),
        "[Loss] expected a module as torch::nn::MSELoss(), not its Impl, or a "
        "function that returns a tensor from a tensor of predictions and one "
        "of targets, or from all outputs and all targets (const Tensors&)");
  }

  /// \return 0-dim.
  /// \throws c10::ValueError when the loss is no scalar, or when there is not
  ///         one output and one target for a loss of two tensors.
  torch::Tensor operator()(const Tensors& outputs, const Tensors& targets)
      const;

  /// A loss that is the mean of `values(pred, target)`: [N, ...], one for each
  /// sample or pixel. Gives a custom loss per-sample values, which MixUp and top
  /// losses need.
  /// \param counts  How much of each sample counts, where not all values do:
  ///                the loss is the sum of the values divided by all of it, and
  ///                0 where nothing counts.
  template <class F>
    requires std::
        is_invocable_r_v<torch::Tensor, F&, torch::Tensor, torch::Tensor>
      static Loss mean_of(F values, const Counts& counts = {}) {
    return mean_of_one(std::move(values), counts);
  }
  /// The same with a function of all outputs and all targets.
  template <class F>
    requires(!std::is_invocable_v<F&, torch::Tensor, torch::Tensor>) &&
            std::is_invocable_r_v<
                torch::Tensor,
                F&,
                const Tensors&,
                const Tensors&>
  static Loss mean_of(F values, const Counts& counts = {}) {
    return mean_of_all(std::move(values), counts);
  }

  /// How much of a batch its loss counts, which is what the batch weighs beside
  /// others: targets that are not ignored, times the weights of their classes;
  /// for segmentation pixels, for losses of numbers all numbers; for a function,
  /// a sum and whatever else Tern does not know, samples. 0: nothing counts.
  /// Waits for the device unless the targets are in host memory.
  double count(const Tensors& outputs, const Tensors& targets) const;
  /// The same for each sample, [N] kDouble, where the targets are; never waits.
  torch::Tensor counts(const Tensors& outputs, const Tensors& targets) const;
  /// Whether it counts samples because nothing else is known.
  bool counts_samples() const { return !counts_; }
  /// Says how much of each sample counts in this loss, which is a mean.
  Loss& count_by(Counts counts);

  /// The loss of each sample, [N], as if it were alone: the mean over its numbers
  /// that count. One class a sample, with a weight or without, is as with
  /// LibTorch's reduction none.
  /// \throws c10::ValueError unless `has_per_sample`.
  torch::Tensor per_sample(const Tensors& outputs, const Tensors& targets)
      const;
  /// What each sample adds to the loss, [N] of 32 bits or more: the loss is the
  /// sum of these divided by `count`.
  /// \throws c10::ValueError unless `has_per_sample`.
  torch::Tensor sum_per_sample(const Tensors& outputs, const Tensors& targets)
      const;
  /// Loss modules of LibTorch with a reduction, and `mean_of`.
  bool has_per_sample() const { return static_cast<bool>(values_); }

  explicit operator bool() const { return static_cast<bool>(function_); }

  /// The loss that suits targets of this type; of several categories, as
  /// `DataBunch::outputs` says, BCEWithLogitsLoss.
  static Loss for_targets(
      const Tensors& targets,
      const std::vector<OutputInfo>& outputs = {});

  /// Whether the loss compares probabilities of several classes, each with 0 or
  /// 1: a binary cross-entropy.
  bool is_multi_category() const {
    return is_bce_of_probabilities_ || activation_ == Activation::sigmoid;
  }

  /// "CrossEntropyLoss"; "a function" for one that is no loss module.
  const std::string& name() const { return name_; }
  Activation activation() const { return activation_; }
  Loss& activation(Activation activation);
  /// Whether the activation was said, or is that of a loss module; of a function
  /// nobody knows it.
  bool knows_activation() const { return knows_activation_; }
  /// Says that the target is the index of a class, which is then checked.
  Loss& target_is_class(int64_t ignore_index = -100);
  /// The class that the loss leaves out; -100 if there is none.
  int64_t ignore_index() const { return ignore_index_; }

  /// Says that targets are positions, such as boxes or points, which MixUp then
  /// refuses to mix.
  Loss& target_is_position();
  bool targets_are_positions() const { return target_is_position_; }

  /// Throws a c10::ValueError for a loss that autocast forbids on this device:
  /// BCELoss on CUDA, whose input a 16-bit sigmoid has rounded to 0 or 1.
  void check_autocast(torch::Device device) const;

  /// For a loss whose target is the index of a class: throws a c10::IndexError
  /// that names the first index in `host_targets` which `outputs` has no column
  /// for. Looks at targets in host memory only, so it never waits; on a GPU the
  /// fault would otherwise end the process.
  void check_class_indices(const Tensors& outputs, const Tensors& host_targets)
      const;

 private:
  static std::string class_name(const std::type_info& module);
  static void check_one(const Tensors& outputs, const Tensors& targets);
  static ValuesOfAll of_one(Values values);
  static Loss mean_of_one(Values values, const Counts& counts);
  static Loss mean_of_all(ValuesOfAll values, const Counts& counts);
  torch::Tensor values_of(const Tensors& outputs, const Tensors& targets) const;

  std::function<torch::Tensor(const Tensors&, const Tensors&)> function_;
  std::string name_ = "a function";
  ValuesOfAll values_;  // empty: no per-sample loss
  Counts counts_;       // empty: samples
  // The loss is the sum of `values_`, divided by what counts.
  bool sums_values_ = false;
  // Also where a sample has one value, which is then a sum over what it counts.
  bool divides_single_values_ = false;
  Activation activation_ = Activation::none;
  bool knows_activation_ = false;
  bool target_is_class_ = false;
  bool target_is_position_ = false;
  bool is_bce_of_probabilities_ = false;
  int64_t ignore_index_ = -100;
};

/// The mean of values: their sum, 0-dim, divided by all that counts. 0 where
/// nothing does, and with it the gradient; never waits for the device.
torch::Tensor mean_over(const torch::Tensor& sum, const torch::Tensor& counts);

/// `pred` with the activation applied, in kFloat; softmax over dimension 1.
torch::Tensor activate(const torch::Tensor& pred, Activation activation);

}  // namespace tern
