#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/state_dict.h"

namespace tern {

/// Replaces a tensor by its sum over the ranks of a distributed training.
class AllReduce {
 public:
  template <std::invocable<const torch::Tensor&> F>
  AllReduce(  // NOLINT: a function is one
      F add_up,
      int64_t rank = 0,
      int64_t world_size = 1,
      torch::Device device = torch::kCPU)
      : add_up_(std::move(add_up)),
        rank_(rank),
        world_size_(world_size),
        device_(device) {}

  void operator()(const torch::Tensor& tensor) const { add_up_(tensor); }
  /// The rows of all ranks, in their order; each may have another number of
  /// them, or none and an undefined tensor. Waits for the device.
  torch::Tensor gather(const torch::Tensor& own) const;
  /// `own`, or of a rank that has seen no batch, where it is undefined, zeros
  /// of the size and type that others have, on this rank's device if theirs are
  /// on one of its kind; undefined if none has any.
  torch::Tensor or_zeros(const torch::Tensor& own) const;

 private:
  std::function<void(const torch::Tensor&)> add_up_;
  int64_t rank_, world_size_;
  torch::Device device_;
};

/// A number that summarizes predictions against targets over a whole dataset.
/// Derive from it for what the functions in learner/metrics/ do not cover.
class MetricImpl {
 public:
  virtual ~MetricImpl() = default;

  /// Column name in logs, unique within a run, e.g. "top_5_accuracy".
  virtual std::string name() const = 0;

  /// Which way is better; EarlyStopping and SaveModel read it from here.
  virtual bool higher_is_better() const = 0;

  /// Whether the targets are class numbers, of which those that are no class of
  /// the model count nowhere: the class that the loss ignores (`ignore_index`)
  /// is then -100.
  virtual bool counts_classes() const { return false; }

  /// Whether a Learner gives `update` a detector's boxes, scores and labels, as
  /// `get_preds` does, in place of the raw outputs they are decoded from.
  virtual bool takes_detections() const { return false; }

  /// Names the class that the loss ignores, as a Learner does before the first
  /// `update`: no part of a mean over classes, even where samples are predicted
  /// as it. -100: none.
  void set_ignore_index(int64_t index) { ignore_index_ = index; }
  int64_t ignore_index() const { return ignore_index_; }

  /// Forgets every `update`.
  virtual void reset() = 0;

  /// Counts one batch in, without waiting for the device.
  /// \param outputs  The model's outputs, at least one tensor [N, ...].
  /// \param targets  The batch's targets, on the same device.
  virtual void update(const Tensors& outputs, const Tensors& targets) = 0;

  /// Value over every `update` since `reset`, whatever the sizes of the
  /// batches: 0-dim kDouble, left on the device so that the reader chooses when
  /// to wait. NaN before the first `update`.
  virtual torch::Tensor compute() const = 0;

  /// What `update` has counted since `reset`, for a training that is resumed in
  /// the middle of an epoch; may share memory. Nothing if the class cannot say
  /// it: its value of that epoch is NaN then.
  virtual std::optional<StateDict> state_dict() const { return std::nullopt; }
  /// \param state  What `state_dict` gave, on the device of the batches.
  virtual void load_state_dict([[maybe_unused]] const StateDict& state) {}

  /// Makes this the metric of all ranks' data, in a training of several
  /// processes. All ranks call it, after their last `update`.
  /// \param all_reduce  Adds a tensor up over the ranks, in place.
  /// \throws c10::NotImplementedError unless overridden.
  virtual void sync([[maybe_unused]] const AllReduce& all_reduce) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "[Metric] ",
        name(),
        " cannot be computed over several processes; override sync to add up "
        "what update has counted.");
  }

 private:
  friend class Metric;
  int64_t ignore_index_ = -100;
  // How many batches had a NaN in their first output: 0-dim kFloat on their
  // device, undefined before the first `update`.
  torch::Tensor nan_batches_;
};

/// The state of a metric that keeps one tensor of counts, undefined before the
/// first `update`; and the tensor of such a state.
StateDict counted_state(const torch::Tensor& counts);
torch::Tensor counts_of_state(const StateDict& state);

/// `targets` with -100 in place of the class `ignore_index` in the first, if
/// that has class numbers.
Tensors without_class(Tensors targets, int64_t ignore_index);

/// Whether a number in the first output is NaN: 0-dim kFloat on its device, 0 or
/// 1, without waiting for it. Undefined if there is no output.
torch::Tensor has_nan(const Tensors& outputs);

/// The values of 0-dim tensors on any devices, the CPU among them, with one
/// wait for all.
std::vector<double> read_numbers(const Tensors& numbers);

/// Holds a MetricImpl; copies share it. A Learner counts in a copy of its own,
/// so that Learners made from the same options do not count into one.
///
/// Of any metric the value is NaN if a number in the first output was NaN:
/// compared with a threshold or sorted, a NaN would count as some answer.
///
///   .metrics = {tern::accuracy(), tern::Metric("max_error", max_error, false)}
class Metric {
 public:
  using Function = std::function<
      torch::Tensor(const torch::Tensor& pred, const torch::Tensor& target)>;

  template <std::derived_from<MetricImpl> Impl>
  Metric(std::shared_ptr<Impl> impl)  // NOLINT: implicit on purpose
      : impl_(std::move(impl)) {
    TORCH_CHECK_VALUE(
        impl_,
        "[Metric] the pointer is null; expected a metric. Use tern::accuracy() "
        "or std::make_shared<YourMetric>().");
    if constexpr (std::copy_constructible<Impl>) {
      const MetricImpl& metric = *impl_;
      if (typeid(metric) == typeid(Impl)) {
        copy_ = [](const MetricImpl& other) -> std::shared_ptr<MetricImpl> {
          return std::make_shared<Impl>(static_cast<const Impl&>(other));
        };
      }
    }
  }

  template <class T>
    requires std::is_function_v<T> || std::derived_from<T, MetricImpl> ||
             std::is_invocable_v<const T&, torch::Tensor, torch::Tensor>
  Metric(const T&) {  // NOLINT: as above
    static_assert(
        !sizeof(T*),
        "[Metric] expected a metric: tern::accuracy() with its parentheses, "
        "std::make_shared<YourMetric>(), or tern::Metric(\"name\", function)");
  }

  /// The mean of a function over all samples; learner/metrics/mean_metric.cpp.
  ///
  /// \param fn  Gets the first output and the first target, gives [N, ...] (one
  ///            value a sample) or a 0-dim tensor, the batch's mean, which
  ///            then weighs as much as the batch has samples.
  Metric(std::string name, Function fn, bool higher_is_better = true);

  std::string name() const { return impl_->name(); }
  bool higher_is_better() const { return impl_->higher_is_better(); }
  bool counts_classes() const { return impl_->counts_classes(); }
  bool takes_detections() const { return impl_->takes_detections(); }
  void set_ignore_index(int64_t index) { impl_->set_ignore_index(index); }
  void reset();
  /// \throws c10::ValueError if an output or a target is missing, or if shapes
  ///         or types are not what the metric expects.
  void update(const Tensors& outputs, const Tensors& targets) {
    update(outputs, targets, has_nan(outputs));
  }
  /// \param has_nan  What `has_nan(outputs)` gives, which several metrics of a
  ///                 batch share.
  void update(
      const Tensors& outputs,
      const Tensors& targets,
      const torch::Tensor& has_nan);
  torch::Tensor compute() const;
  void sync(const AllReduce& all_reduce);
  std::optional<StateDict> state_dict() const;
  void load_state_dict(const StateDict& state);

  /// A metric of the same kind that has counted nothing yet; this one where
  /// its MetricImpl cannot be copied.
  Metric fresh_copy() const;
  bool can_be_copied() const { return copy_ != nullptr; }

 private:
  std::shared_ptr<MetricImpl> impl_;
  std::shared_ptr<MetricImpl> (*copy_)(const MetricImpl&) = nullptr;
};

}  // namespace tern
