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

/// Replaces a tensor with its sum over the ranks of a distributed run.
class AllReduce {
 public:
  template <std::invocable<const torch::Tensor&> F>
  AllReduce(  // NOLINT: implicit on purpose
      F add_up,
      int64_t rank = 0,
      int64_t world_size = 1,
      torch::Device device = torch::kCPU)
      : add_up_(std::move(add_up)),
        rank_(rank),
        world_size_(world_size),
        device_(device) {}

  void operator()(const torch::Tensor& tensor) const { add_up_(tensor); }
  /// Concatenates the rows of all ranks in rank order. The number of rows may
  /// differ between ranks; a rank without rows passes an undefined tensor.
  /// Synchronizes with the device.
  torch::Tensor gather(const torch::Tensor& own) const;
  /// Returns `own`. On a rank without batches, where `own` is undefined,
  /// returns zeros with the size and dtype of the other ranks' tensors, on this
  /// rank's device if theirs are on a device of the same kind. Undefined if no
  /// rank has a tensor.
  torch::Tensor or_zeros(const torch::Tensor& own) const;

 private:
  std::function<void(const torch::Tensor&)> add_up_;
  int64_t rank_, world_size_;
  torch::Device device_;
};

/// A number that compares predictions with targets over a whole dataset. Derive
/// from it if the functions in learner/metrics/ are not enough.
class MetricImpl {
 public:
  virtual ~MetricImpl() = default;

  /// Column name in logs, unique within a run, e.g. "top_5_accuracy".
  virtual std::string name() const = 0;

  /// True if higher values are better; read by EarlyStopping and SaveModel.
  virtual bool higher_is_better() const = 0;

  /// True if the targets are class indices. Targets of the class that the loss
  /// ignores (`ignore_index`) are then replaced by -100, and indices that are
  /// not classes of the model are not counted.
  virtual bool counts_classes() const { return false; }

  /// True if `update` takes a detector's boxes, scores and labels, as returned
  /// by `get_preds`, in place of the raw outputs.
  virtual bool takes_detections() const { return false; }

  /// Sets the class that the loss ignores; a Learner calls this before the
  /// first `update`. The class is left out of a mean over classes, even if it
  /// is predicted for some samples. -100: none.
  void set_ignore_index(int64_t index) { ignore_index_ = index; }
  int64_t ignore_index() const { return ignore_index_; }

  /// Clears the counts of all updates.
  virtual void reset() = 0;

  /// Adds one batch, without synchronizing with the device.
  /// \param outputs  The model's outputs, at least one tensor [N, ...].
  /// \param targets  The batch's targets, on the same device.
  virtual void update(const Tensors& outputs, const Tensors& targets) = 0;

  /// Returns the value over all samples since `reset`, independent of the batch
  /// sizes: 0-dim kDouble, left on the device so that the caller decides when
  /// to synchronize. NaN before the first `update`.
  virtual torch::Tensor compute() const = 0;

  /// Returns the counts since `reset`, for a run that is resumed in the middle
  /// of an epoch; may share memory. Unset if the class does not support this;
  /// the value for that epoch is then NaN.
  virtual std::optional<StateDict> state_dict() const { return std::nullopt; }
  /// \param state  The result of `state_dict`, on the device of the batches.
  virtual void load_state_dict([[maybe_unused]] const StateDict& state) {}

  /// Combines the counts of all ranks of a distributed run. All ranks call
  /// it, after their last `update`.
  /// \param all_reduce  Sums a tensor over the ranks, in place.
  /// \throws c10::NotImplementedError unless overridden.
  virtual void sync([[maybe_unused]] const AllReduce& all_reduce) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "[Metric] ",
        name(),
        " cannot be computed over several processes; override sync to sum what "
        "update has accumulated.");
  }

 private:
  friend class Metric;
  int64_t ignore_index_ = -100;
  // The number of batches with a NaN in their first output: 0-dim kFloat on
  // their device, undefined before the first `update`.
  torch::Tensor nan_batches_;
};

/// For metrics that keep one tensor of counts, which is undefined before the
/// first `update`. `counted_state` returns their state, and `counts_of_state`
/// returns a copy of the tensor in such a state.
StateDict counted_state(const torch::Tensor& counts);
torch::Tensor counts_of_state(const StateDict& state);

/// Returns `targets`. If the first tensor contains class indices, the class
/// `ignore_index` is replaced by -100 in it.
Tensors without_class(Tensors targets, int64_t ignore_index);

/// Returns 1 if a number in the first output is NaN, else 0: 0-dim kFloat on
/// its device, without synchronizing. Undefined if there is no output.
torch::Tensor has_nan(const Tensors& outputs);

/// Reads 0-dim tensors from any devices, including the CPU, with a single
/// synchronization.
std::vector<double> read_numbers(const Tensors& numbers);

/// Holds a MetricImpl; copies share it. A Learner counts in a fresh copy, so
/// Learners created from the same options do not share counts.
///
/// The value of every metric is NaN if a number in the first output was NaN;
/// otherwise a comparison with a threshold or a sort would treat NaN as a
/// prediction.
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

  /// The mean of a function over all samples; see
  /// learner/metrics/mean_metric.cpp.
  ///
  /// \param fn  Takes the first output and the first target. Returns [N, ...],
  ///            one value per sample, or a 0-dim tensor, the batch's mean,
  ///            which is weighted by the number of samples in the batch.
  Metric(std::string name, Function fn, bool higher_is_better = true);

  std::string name() const { return impl_->name(); }
  bool higher_is_better() const { return impl_->higher_is_better(); }
  bool counts_classes() const { return impl_->counts_classes(); }
  bool takes_detections() const { return impl_->takes_detections(); }
  void set_ignore_index(int64_t index) { impl_->set_ignore_index(index); }
  void reset();
  /// \throws c10::ValueError if an output or a target is missing, or if the
  ///         metric does not support the shapes or dtypes.
  void update(const Tensors& outputs, const Tensors& targets) {
    update(outputs, targets, has_nan(outputs));
  }
  /// \param has_nan  The result of `has_nan(outputs)`, shared by all metrics of
  ///                 a batch.
  void update(
      const Tensors& outputs,
      const Tensors& targets,
      const torch::Tensor& has_nan);
  torch::Tensor compute() const;
  void sync(const AllReduce& all_reduce);
  std::optional<StateDict> state_dict() const;
  void load_state_dict(const StateDict& state);

  /// Returns a metric of the same kind without counts; returns this metric if
  /// its MetricImpl cannot be copied.
  Metric fresh_copy() const;
  bool can_be_copied() const { return copy_ != nullptr; }

 private:
  std::shared_ptr<MetricImpl> impl_;
  std::shared_ptr<MetricImpl> (*copy_)(const MetricImpl&) = nullptr;
};

}  // namespace tern
