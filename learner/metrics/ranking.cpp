#include "tern/learner/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/kernels/check.h"
#include "tern/learner/metrics/class_counts.h"

namespace tern {

namespace {

// Returns the end of each run of equal numbers, counted from 1, and its length.
std::pair<torch::Tensor, torch::Tensor> runs(const torch::Tensor& sorted) {
  const auto [values, place, counts] = torch::unique_consecutive(
      sorted,
      /*return_inverse=*/false,
      /*return_counts=*/true);
  return {counts.cumsum(0), counts};
}

// Returns ranks from 1; equal numbers get their mean rank. [n] kDouble.
torch::Tensor ranks(const torch::Tensor& numbers) {
  const auto [sorted, order] = numbers.sort();
  const auto [ends, counts] = runs(sorted);
  const torch::Tensor mean =
      ends.to(torch::kDouble) - (counts - 1).to(torch::kDouble) / 2;
  torch::Tensor result = torch::empty_like(numbers, torch::kDouble);
  result.scatter_(0, order, mean.repeat_interleave(counts));
  return result;
}

// `is_right`: [n] kDouble of 0 and 1.
torch::Tensor area_under_curve(
    const torch::Tensor& scores,
    const torch::Tensor& is_right) {
  const torch::Tensor right = is_right.sum();
  const torch::Tensor wrong = static_cast<double>(scores.numel()) - right;
  const torch::Tensor above =
      (ranks(scores) * is_right).sum() - right * (right + 1) / 2;
  return above / (right * wrong);
}

torch::Tensor precision_on_average(
    const torch::Tensor& scores,
    const torch::Tensor& right) {
  const auto [sorted, order] = scores.sort(/*dim=*/0, /*descending=*/true);
  const torch::Tensor ends = runs(sorted).first;
  const torch::Tensor hits =
      right.gather(0, order).cumsum(0).index_select(0, ends - 1);
  const torch::Tensor gains =
      hits.diff(/*n=*/1, /*dim=*/0, torch::zeros({1}, hits.options()));
  return ratio((gains * hits / ends).sum(), right.sum());
}

// A formula over scores and targets; for over_columns, both are [n, L].
using Formula = std::function<
    torch::Tensor(const torch::Tensor& scores, const torch::Tensor& targets)>;
using ClassFormula = std::function<torch::Tensor(
    const torch::Tensor& scores,
    const torch::Tensor& classes,
    int64_t ignore_index)>;

// Averages over columns. `right` is 0, 1, or kUnknown where the label is
// unknown.
constexpr uint8_t kUnknown = 2;
Formula over_columns(
    torch::Tensor (*of)(const torch::Tensor&, const torch::Tensor&)) {
  return [of](const torch::Tensor& scores, const torch::Tensor& right) {
    Tensors values;
    for (int64_t i = 0; i < scores.size(1); ++i) {
      torch::Tensor score = scores.select(1, i).contiguous();
      torch::Tensor target = right.select(1, i);
      if (right.scalar_type() != torch::kBool) {
        const torch::Tensor is_known = target < kUnknown;
        score = score.index({is_known});
        target = target.index({is_known});
      }
      values.push_back(of(score, target.to(torch::kDouble)));
    }
    return torch::stack(values).nanmean();
  };
}

// The stored part of each batch: scores and targets.
using Pair = std::pair<torch::Tensor, torch::Tensor>;
using Prepare = std::function<Pair(const torch::Tensor&, const torch::Tensor&)>;

class RankMetric final : public MetricImpl {
 public:
  RankMetric(
      std::string name,
      Prepare prepare,
      ClassFormula formula,
      bool counts_classes)
      : name_(std::move(name)),
        prepare_(std::move(prepare)),
        formula_(std::move(formula)),
        counts_classes_(counts_classes) {}
  RankMetric(std::string name, Prepare prepare, Formula formula)
      : RankMetric(
            std::move(name),
            std::move(prepare),
            [formula = std::move(formula)](
                const torch::Tensor& scores,
                const torch::Tensor& targets,
                int64_t) { return formula(scores, targets); },
            /*counts_classes=*/false) {}

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  bool counts_classes() const override { return counts_classes_; }
  void reset() override {
    scores_.clear();
    targets_.clear();
  }

  void update(const Tensors& outputs, const Tensors& targets) override {
    const auto [scores, wanted] = prepare_(outputs[0], targets[0]);
    // Copies, because the next batch may reuse this memory.
    scores_.push_back(scores.clone());
    targets_.push_back(wanted.clone());
  }

  void sync(const AllReduce& all_reduce) override {
    for (Tensors* const parts : {&scores_, &targets_}) {
      const torch::Tensor all = all_reduce.gather(
          parts->empty() ? torch::Tensor() : torch::cat(*parts));
      if (all.defined()) *parts = {all};
    }
  }

  std::optional<StateDict> state_dict() const override {
    if (scores_.empty()) return StateDict();
    return StateDict(
        {{"scores", torch::cat(scores_)}, {"targets", torch::cat(targets_)}});
  }
  void load_state_dict(const StateDict& state) override {
    reset();
    if (state.is_empty()) return;
    scores_ = {state["scores"].clone()};
    targets_ = {state["targets"].clone()};
  }

  torch::Tensor compute() const override {
    const auto nan = torch::full({}, std::nan(""), torch::kDouble);
    if (scores_.empty()) return nan;
    const torch::Tensor scores = torch::cat(scores_);
    const torch::Tensor targets = torch::cat(targets_);
    // Sorting would treat NaN as the largest number. softmax of infinite scores
    // gives NaN.
    const torch::Tensor value = formula_(scores, targets, ignore_index());
    return torch::where(
        scores.isnan().any().logical_or(targets.isnan().any()),
        nan.to(value.device()),
        value);
  }

 private:
  std::string name_;
  Prepare prepare_;
  ClassFormula formula_;
  bool counts_classes_;
  Tensors scores_, targets_;
};

// For scores [n, C], or [n, 1] of class 1 only, and class indices [n]. Targets
// that are not a class are removed when the value is computed, not in each
// batch, because a mask synchronizes with the device.
Metric of_classes(const char* name, const Formula& formula, int64_t axis) {
  const auto prepare = [name, axis](
                           const torch::Tensor& outputs,
                           const torch::Tensor& targets) -> Pair {
    if (is_binary(outputs, targets) && !is_one_hot(outputs, targets, axis)) {
      return {outputs.reshape({-1, 1}), targets.reshape(-1).to(torch::kLong)};
    }
    const auto [scores, classes] = class_scores(name, outputs, targets, axis);
    const torch::Tensor probabilities = scores.softmax(1);
    return {
        scores.size(1) == 2 ? probabilities.narrow(1, 1, 1) : probabilities,
        classes};
  };
  const auto by_class = [formula](
                            const torch::Tensor& scores,
                            const torch::Tensor& classes,
                            int64_t ignore_index) {
    const int64_t columns = scores.size(1);
    torch::Tensor index = torch::ones({1}, classes.options());
    torch::Tensor known = scores;
    if (columns > 1) {
      index = torch::arange(columns, classes.options());
      index = index.masked_select(index != ignore_index);
      known = scores.index_select(1, index);
    }
    const torch::Tensor counted =
        is_class(classes, std::max<int64_t>(columns, 2));
    return formula(
        known.index({counted}),
        classes.index({counted}).unsqueeze(1) == index);
  };
  return std::make_shared<RankMetric>(name, prepare, by_class, true);
}

Metric of_labels(const char* name, Formula formula) {
  const auto prepare = [name](
                           const torch::Tensor& outputs,
                           const torch::Tensor& targets) -> Pair {
    TERN_CHECK_VALUE(
        outputs.dim() == 2,
        "[{}] outputs have {} dimensions; expected [N, L], a score for each "
        "label.",
        name,
        outputs.dim());
    const auto [target, is_known] =
        known_labels(in_shape_of(name, outputs, targets));
    return {outputs, target.to(torch::kByte).masked_fill(~is_known, kUnknown)};
  };
  return std::make_shared<RankMetric>(name, prepare, std::move(formula));
}

}  // namespace

Metric roc_auc(int64_t axis) {
  return of_classes("roc_auc", over_columns(area_under_curve), axis);
}

Metric average_precision(int64_t axis) {
  return of_classes(
      "average_precision",
      over_columns(precision_on_average),
      axis);
}

Metric roc_auc_multi() {
  return of_labels("roc_auc_multi", over_columns(area_under_curve));
}

Metric average_precision_multi() {
  return of_labels(
      "average_precision_multi",
      over_columns(precision_on_average));
}

Metric spearman_corrcoef() {
  const char* const name = "spearman_corrcoef";
  const auto prepare = [name](
                           const torch::Tensor& outputs,
                           const torch::Tensor& targets) -> Pair {
    return {
        outputs.reshape(-1),
        in_shape_of(name, outputs, targets).reshape(-1)};
  };
  const auto formula = [](const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor x = ranks(a), y = ranks(b);
    const torch::Tensor p = x - x.mean(), t = y - y.mean();
    return (p * t).sum() / (p.square().sum().sqrt() * t.square().sum().sqrt());
  };
  return std::make_shared<RankMetric>(name, prepare, formula);
}

}  // namespace tern
