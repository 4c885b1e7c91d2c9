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

// Returns the target in the form required by elementwise losses, such as
// MSELoss and BCELoss: floating-point, and in the shape of the prediction. The
// two shapes may differ only in dimensions of size 1; otherwise [N, 1] and [N]
// would be broadcast to N x N.
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

// Losses whose targets are class indices. Their mean omits ignored targets and
// weights the others by class.
template <class Impl>
concept ComparesClasses = std::same_as<Impl, torch::nn::CrossEntropyLossImpl> ||
                          std::same_as<Impl, torch::nn::NLLLossImpl>;

// Losses whose mean is over all elements of the target, not over samples.
template <class Impl>
concept CountsNumbers =
    ComparesNumbers<Impl> || std::same_as<Impl, torch::nn::KLDivLossImpl> ||
    std::same_as<Impl, torch::nn::HingeEmbeddingLossImpl>;

// Class weights on the device of the targets. The copy is cached, because
// copying for each batch would synchronize with the device.
class ClassWeights {
 public:
  // \return undefined if `weights` is undefined, which means that all weights
  //         are 1.
  torch::Tensor on(torch::Device device, const torch::Tensor& weights);

 private:
  torch::Tensor source_, copy_;
  int64_t version_ = -1;
};

// Returns the weight of each sample in cross-entropy, [N] kDouble: the sum of
// the class weights of its targets, without ignored targets. For class
// probabilities [N, C, ...] each position counts 1.
torch::Tensor class_counts(
    const torch::Tensor& target,
    const torch::Tensor& weights,
    int64_t ignore_index);

// Returns the number of values in each sample, [N] kDouble.
torch::Tensor number_counts(const torch::Tensor& target);

template <class Holder>
bool is_mean(Holder& loss) {
  return std::holds_alternative<torch::enumtype::kMean>(
      loss->options.reduction());
}

// Returns a function that computes a loss module's values without reduction. It
// uses the module itself, not a copy, because the module's weights may move to
// another device; it restores the module's reduction immediately.
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
/// If LearnerOptions has no loss, the Learner chooses one at the first batch:
/// cross-entropy for kLong targets, mean squared error for floating-point
/// targets. Elementwise loss modules, such as MSELoss and BCELoss, accept
/// targets [N] with outputs [N, 1].
class Loss {
 public:
  /// Computes one value per sample or pixel from (pred, target).
  using Values = std::function<
      torch::Tensor(const torch::Tensor& pred, const torch::Tensor& target)>;
  /// Computes the same from all outputs and all targets.
  using ValuesOfAll = std::function<
      torch::Tensor(const Tensors& outputs, const Tensors& targets)>;
  /// Computes the count of each sample, that is, its weight in a loss that is a
  /// mean: [N], on the device of the targets. The targets may be in host memory
  /// while the outputs are on a GPU.
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
        "[Loss] expected a module such as torch::nn::MSELoss(), not its Impl, "
        "or a function that returns a tensor from a tensor of predictions and "
        "one of targets, or from all outputs and all targets (const "
        "Tensors&).");
  }

  /// \return 0-dim.
  /// \throws c10::ValueError if the loss is not a scalar, or if a loss of
  ///         (pred, target) does not receive exactly one output and one target.
  torch::Tensor operator()(const Tensors& outputs, const Tensors& targets)
      const;

  /// Creates a loss that is the mean of `values(pred, target)`, [N, ...], one
  /// value per sample or pixel. This gives a custom loss the per-sample values
  /// that MixUp and top losses need.
  /// \param counts  The count of each sample, if not all values count. The loss
  ///                is the sum of the values divided by the sum of the counts,
  ///                or 0 if all counts are 0.
  template <class F>
    requires std::
        is_invocable_r_v<torch::Tensor, F&, torch::Tensor, torch::Tensor>
      static Loss mean_of(F values, const Counts& counts = {}) {
    return mean_of_one(std::move(values), counts);
  }
  /// The same, from a function of all outputs and all targets.
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

  /// Returns the count of a batch, that is, its weight in means over batches.
  /// For class targets this is the number of targets (in segmentation, pixels)
  /// that are not ignored, or with class weights the sum of their weights; for
  /// elementwise losses, the number of values; otherwise, for example for
  /// functions and sums, the number of samples. Can be 0. Synchronizes with the
  /// device unless the targets are in host memory.
  double count(const Tensors& outputs, const Tensors& targets) const;
  /// Returns the count of each sample, [N] kDouble, on the device of the
  /// targets. Never synchronizes.
  torch::Tensor counts(const Tensors& outputs, const Tensors& targets) const;
  /// True if the loss counts samples, because no other count is known.
  bool counts_samples() const { return !counts_; }
  /// Sets the count of each sample in this loss, which must be a mean.
  Loss& count_by(Counts counts);

  /// Returns the loss of each sample, [N], computed separately: the mean over
  /// the values that count. With one class per sample, with or without class
  /// weights, the result equals LibTorch's with reduction `none`.
  /// \throws c10::ValueError unless `has_per_sample`.
  torch::Tensor per_sample(const Tensors& outputs, const Tensors& targets)
      const;
  /// Returns the contribution of each sample to the loss, [N], with 32 bits or
  /// more: the loss is the sum of the contributions divided by `count`.
  /// \throws c10::ValueError unless `has_per_sample`.
  torch::Tensor sum_per_sample(const Tensors& outputs, const Tensors& targets)
      const;
  /// True for loss modules of LibTorch with a reduction, and for `mean_of`.
  bool has_per_sample() const { return static_cast<bool>(values_); }

  explicit operator bool() const { return static_cast<bool>(function_); }

  /// Returns the default loss for targets of this dtype; BCEWithLogitsLoss if
  /// `DataBunch::outputs` describes several categories per sample.
  static Loss for_targets(
      const Tensors& targets,
      const std::vector<OutputInfo>& outputs = {});

  /// True if the loss is a binary cross-entropy, which compares the probability
  /// of each class with 0 or 1.
  bool is_multi_category() const {
    return is_bce_of_probabilities_ || activation_ == Activation::sigmoid;
  }

  /// Returns the name, such as "CrossEntropyLoss"; "a function" if the loss is
  /// not a loss module.
  const std::string& name() const { return name_; }
  Activation activation() const { return activation_; }
  Loss& activation(Activation activation);
  /// True if the activation was set or follows from a loss module. The
  /// activation of a function is unknown.
  bool knows_activation() const { return knows_activation_; }
  /// Declares that the target is a class index, which is then checked.
  Loss& target_is_class(int64_t ignore_index = -100);
  /// Returns the class that the loss ignores; -100 if there is none.
  int64_t ignore_index() const { return ignore_index_; }

  /// Declares that targets are positions, such as boxes or points, which MixUp
  /// rejects.
  Loss& target_is_position();
  bool targets_are_positions() const { return target_is_position_; }

  /// Throws a c10::ValueError for a loss that autocast forbids on this device:
  /// BCELoss on CUDA, whose input probabilities a 16-bit sigmoid rounds to 0 or
  /// 1.
  void check_autocast(torch::Device device) const;

  /// If the target is a class index, throws a c10::IndexError naming the first
  /// index in `host_targets` that is out of range for `outputs`. Checks only
  /// targets in host memory, so it never synchronizes. On a GPU such an index
  /// would otherwise abort the process.
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
  // The loss is the sum of `values_` divided by the counts.
  bool sums_values_ = false;
  // True if a sample's value is divided by its count even if the sample has
  // only one value.
  bool divides_single_values_ = false;
  Activation activation_ = Activation::none;
  bool knows_activation_ = false;
  bool target_is_class_ = false;
  bool target_is_position_ = false;
  bool is_bce_of_probabilities_ = false;
  int64_t ignore_index_ = -100;
};

/// Returns a mean: the sum of values, 0-dim, divided by the sum of the counts.
/// If no value counts, the mean and its gradient are 0. Never synchronizes.
torch::Tensor mean_over(const torch::Tensor& sum, const torch::Tensor& counts);

/// Applies the activation to `pred` and returns kFloat; softmax is over
/// dimension 1.
torch::Tensor activate(const torch::Tensor& pred, Activation activation);

}  // namespace tern
