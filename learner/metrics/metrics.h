#pragma once

#include <functional>
#include <string>

#include "tern/learner/metric.h"
#include "tern/learner/metrics/average.h"

namespace tern {

// ---- Classifiers; a target that is no class of the model counts nowhere, nor
//      does the class that the loss ignores: no part of a mean over classes,
//      as in scikit-learn with `labels` that leave it out ----

// Outputs are [N, C, ...] scores, as for cross-entropy; with `axis = -1`
// [N, ..., C], such as a sequence's. Targets are [N, ...] class numbers, or
// one-hot: whole numbers of the outputs' shape, exactly one of them set among
// the classes, which is checked in each batch and waits for the device. Of a
// sequence one-hot targets need `axis = -1`: [N, H, W] is a binary mask.

/// Share of samples (or pixels) whose likeliest class is the true one.
Metric accuracy(int64_t axis = 1);

/// 1 - accuracy.
Metric error_rate(int64_t axis = 1);

/// Share of samples whose true class is among the `k` likeliest.
/// \param k  >= 1; the model needs at least as many classes.
Metric top_k_accuracy(int64_t k = 5, int64_t axis = 1);

// Precision, recall and their kin, exact over the whole set. Outputs may also be
// [N] or [N, 1, ...] logits of a binary classifier.

/// Share of right answers among the samples that were called a class.
Metric precision(Average average = Average::automatic, int64_t axis = 1);

/// Share of a class's samples that were found.
Metric recall(Average average = Average::automatic, int64_t axis = 1);

/// Harmonic mean of precision and recall, recall counting `beta` times as much.
/// \param beta  > 0.
Metric
f_beta(double beta = 2, Average average = Average::automatic, int64_t axis = 1);

/// f_beta with beta 1.
Metric f1(Average average = Average::automatic, int64_t axis = 1);

/// Overlap of predicted and true region, `2 |A and B| / (|A| + |B|)`, counted
/// over the whole set: of class 1 with two classes, else the mean over those
/// classes that come up. 1 if no class is present or predicted.
Metric dice(int64_t axis = 1);

/// Intersection over union of what is called a class and what is one (IoU of
/// pixels); a class that never comes up is no part of the mean.
Metric jaccard(Average average = Average::automatic, int64_t axis = 1);

/// What a mistake costs: all the same, or by how far the class numbers are
/// apart, which suits grades.
enum class KappaWeights { none, linear, quadratic };

/// Agreement beyond chance (Cohen).
Metric cohen_kappa(KappaWeights weights = KappaWeights::none, int64_t axis = 1);

/// Correlation of predicted and true classes (Matthews), -1 to 1.
Metric matthews_corrcoef(int64_t axis = 1);

/// A metric that follows from the confusion matrix of the whole set, which is
/// counted on the device in kLong.
class ConfusionMetric final : public MetricImpl {
 public:
  /// \param matrix        [C, C] kDouble: rows are true classes, columns
  ///                      predicted.
  /// \param ignore_index  The class that the loss ignores, whose row is 0;
  ///                      others than 0 to C - 1: none.
  /// \return              0-dim kDouble.
  using Formula = std::function<
      torch::Tensor(const torch::Tensor& matrix, int64_t ignore_index)>;

  /// \param axis          Dimension of the outputs that holds the classes.
  ConfusionMetric(std::string name, Formula formula, int64_t axis = 1);
  /// A formula of the matrix alone.
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
