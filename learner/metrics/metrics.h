#pragma once

#include <functional>
#include <string>

#include "tern/learner/metric.h"
#include "tern/learner/metrics/average.h"

namespace tern {

// ---- Classifiers ----

// Targets that are not a class of the model are not counted, nor are targets of
// the class that the loss ignores. Means over classes leave this class out,
// like scikit-learn with a list of `labels` that does not contain it.

// Outputs are [N, C, ...] scores, as for cross-entropy; with `axis = -1` they
// are [N, ..., C], for example of a sequence. Targets are class indices [N,
// ...], or one-hot: integers with the same shape as the outputs, with a single
// 1 among the classes. Each batch is checked for this, which synchronizes with
// the device. One-hot targets of a sequence need `axis = -1`, since [N, H, W]
// is a binary mask.

/// Fraction of samples (or pixels) whose most likely class is the true one.
Metric accuracy(int64_t axis = 1);

/// 1 - accuracy.
Metric error_rate(int64_t axis = 1);

/// Fraction of samples whose true class is among the `k` most likely.
/// \param k  >= 1; the model needs at least this many classes.
Metric top_k_accuracy(int64_t k = 5, int64_t axis = 1);

// Precision, recall and related metrics, exact over the whole dataset. Outputs
// may also be [N] or [N, 1, ...] logits of a binary classifier.

/// Of the samples predicted as a class, the fraction that belongs to it.
Metric precision(Average average = Average::automatic, int64_t axis = 1);

/// Of the samples of a class, the fraction that is predicted as this class.
Metric recall(Average average = Average::automatic, int64_t axis = 1);

/// Weighted harmonic mean of precision and recall, in which recall counts
/// `beta` times as much.
/// \param beta  > 0.
Metric
f_beta(double beta = 2, Average average = Average::automatic, int64_t axis = 1);

/// f_beta with beta 1.
Metric f1(Average average = Average::automatic, int64_t axis = 1);

/// Overlap of predicted and true region, `2 |A and B| / (|A| + |B|)`, counted
/// over the whole dataset: for class 1 if there are two classes and the loss
/// ignores neither, otherwise the mean over the classes that occur or are
/// predicted. 1 if no class occurs or is predicted.
Metric dice(int64_t axis = 1);

/// Intersection over union of the predicted and the true region of a class (IoU
/// of pixels). Classes that neither occur nor are predicted are left out of the
/// mean.
Metric jaccard(Average average = Average::automatic, int64_t axis = 1);

/// Cost of a mistake: the same for all mistakes, or growing with the distance
/// between the class indices, which suits ordinal classes such as grades.
enum class KappaWeights { none, linear, quadratic };

/// Agreement beyond chance (Cohen's kappa).
Metric cohen_kappa(KappaWeights weights = KappaWeights::none, int64_t axis = 1);

/// Correlation of predicted and true classes (Matthews), from -1 to 1.
Metric matthews_corrcoef(int64_t axis = 1);

/// A metric computed from the confusion matrix of the whole dataset. The matrix
/// is counted on the device in kLong.
class ConfusionMetric final : public MetricImpl {
 public:
  /// \param matrix        [C, C] kDouble: rows are true classes, columns
  ///                      predicted classes.
  /// \param ignore_index  The class that the loss ignores; its row is 0.
  ///                      Outside 0 to C - 1: the loss ignores no class.
  /// \return              0-dim kDouble.
  using Formula = std::function<
      torch::Tensor(const torch::Tensor& matrix, int64_t ignore_index)>;

  /// \param axis  Dimension of the outputs that holds the classes.
  ConfusionMetric(std::string name, Formula formula, int64_t axis = 1);
  /// The same with a formula that uses only the matrix.
  ConfusionMetric(
      std::string name,
      std::function<torch::Tensor(const torch::Tensor& matrix)> formula,
      int64_t axis = 1);

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  bool counts_classes() const override { return true; }
  void reset() override { counts_.reset(); }
  void update(const Tensors& outputs, const Tensors& targets) override;
  torch::Tensor compute() const override;
  void sync(const AllReduce& all_reduce) override;
  std::optional<StateDict> state_dict() const override {
    return counted_state(counts_);
  }
  void load_state_dict(const StateDict& state) override {
    counts_ = counts_of_state(state);
  }

 private:
  std::string name_;
  Formula formula_;
  int64_t axis_;
  torch::Tensor counts_;  // [C, C] kLong
};

}  // namespace tern
