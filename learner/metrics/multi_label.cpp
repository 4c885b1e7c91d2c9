#include "tern/learner/metrics/multi_label.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tern/data/batch.h"
#include "tern/kernels/check.h"
#include "tern/learner/metrics/class_counts.h"
#include "tern/learner/metrics/mean_of.h"

namespace tern {

namespace {

// Predicted and true labels of each sample, where the true label is known.
struct Labels {
  torch::Tensor pred, target, is_known;  // kBool; first two false if unknown
};

Labels labels_of(
    const std::string& metric,
    const torch::Tensor& outputs,
    const torch::Tensor& targets,
    double threshold,
    bool sigmoid) {
  const auto [target, is_known] =
      known_labels(in_shape_of(metric, outputs, targets));
  torch::Tensor pred = outputs.to(torch::kFloat);
  if (sigmoid) pred = pred.sigmoid();
  return {(pred > threshold) & is_known, target, is_known};
}

void check_threshold(const std::string& metric, double threshold) {
  TERN_CHECK_VALUE(
      0 <= threshold && threshold <= 1,
      "[{}] threshold is {}; expected a probability from 0 to 1.",
      metric,
      threshold);
}

Metric accuracy_or_loss(
    const char* name,
    bool counts_errors,
    double threshold,
    bool sigmoid) {
  check_threshold(name, threshold);
  const auto count = [=](const torch::Tensor& outputs,
                         const torch::Tensor& targets) -> SumAndCount {
    const auto [pred, target, is_known] =
        labels_of(name, outputs, targets, threshold, sigmoid);
    const torch::Tensor counted =
        counts_errors ? pred != target : (pred == target) & is_known;
    return {counted.sum(), is_known.sum()};
  };
  return std::make_shared<MeanOf>(name, !counts_errors, count);
}

class LabelMetric final : public MetricImpl {
 public:
  LabelMetric(
      std::string name,
      const MultiLabelOptions& options,
      CountsFormula formula)
      : name_(std::move(name)),
        options_(options),
        formula_(std::move(formula)) {
    check_threshold(name_, options.threshold);
    TERN_CHECK_VALUE(
        options.average == Average::macro ||
            options.average == Average::micro ||
            options.average == Average::weighted,
        "[{}] average is Average::automatic or Average::binary; expected "
        "Average::macro, micro or weighted.",
        name_);
  }

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  void reset() override { counts_.reset(); }

  void update(const Tensors& outputs, const Tensors& targets) override {
    TERN_CHECK_VALUE(
        outputs[0].dim() == 2,
        "[{}] outputs have {} dimensions; expected [N, L], a score for each "
        "label.",
        name_,
        outputs[0].dim());
    const auto [pred, target, is_known] = labels_of(
        name_,
        outputs[0],
        targets[0],
        options_.threshold,
        options_.sigmoid);
    const torch::Tensor batch =
        torch::stack({(pred & target).sum(0), pred.sum(0), target.sum(0)});
    counts_ = counts_.defined() ? counts_ + batch : batch;
  }

  void sync(const AllReduce& all_reduce) override {
    counts_ = all_reduce.or_zeros(counts_);
    if (counts_.defined()) all_reduce(counts_);
  }

  std::optional<StateDict> state_dict() const override {
    return counted_state(counts_);
  }
  void load_state_dict(const StateDict& state) override {
    counts_ = counts_of_state(state);
  }

  torch::Tensor compute() const override {
    if (!counts_.defined()) {
      return torch::full({}, std::nan(""), torch::kDouble);
    }
    const torch::Tensor counts = counts_.to(torch::kDouble);
    return formula_(ClassCounts::of_labels(counts[0], counts[1], counts[2]));
  }

 private:
  std::string name_;
  MultiLabelOptions options_;
  CountsFormula formula_;
  torch::Tensor counts_;  // [3, L] kLong: hits, predicted, actual
};

Metric from_beta(
    const std::string& name,
    double beta2,
    const MultiLabelOptions& options) {
  return std::make_shared<LabelMetric>(
      name,
      options,
      beta_formula(name, beta2, options.average));
}

}  // namespace

Metric accuracy_multi(double threshold, bool sigmoid) {
  return accuracy_or_loss("accuracy_multi", false, threshold, sigmoid);
}

Metric hamming_loss_multi(double threshold, bool sigmoid) {
  return accuracy_or_loss("hamming_loss_multi", true, threshold, sigmoid);
}

Metric precision_multi(const MultiLabelOptions& options) {
  return from_beta("precision_multi", 0, options);
}

Metric recall_multi(const MultiLabelOptions& options) {
  return from_beta(
      "recall_multi",
      std::numeric_limits<double>::infinity(),
      options);
}

Metric f_beta_multi(double beta, const MultiLabelOptions& options) {
  TERN_CHECK_VALUE(
      beta > 0 && std::isfinite(beta),
      "[f_beta_multi] beta is {}; expected a finite number > 0.",
      beta);
  return from_beta(fmt::format("f{:g}_multi", beta), beta * beta, options);
}

Metric f1_multi(const MultiLabelOptions& options) {
  return f_beta_multi(1, options);
}

Metric jaccard_multi(const MultiLabelOptions& options) {
  const char* const name = "jaccard_multi";
  return std::make_shared<LabelMetric>(
      name,
      options,
      jaccard_formula(name, options.average, /*spares_absent=*/false));
}

}  // namespace tern
