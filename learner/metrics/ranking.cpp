#include "tern/learner/metrics/ranking.h"

#include <cmath>
#include <functional>
#include <utility>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/kernels/check.h"
#include "tern/learner/metrics/class_counts.h"

namespace tern {

namespace {

// The end of each run of equal numbers, from 1, and its length.
std::pair<torch::Tensor, torch::Tensor> runs(const torch::Tensor& sorted) {
  const auto [values, place, counts] = torch::unique_consecutive(
      sorted,
      /*return_inverse=*/false,
      /*return_counts=*/true);
  return {counts.cumsum(0), counts};
}

// From 1; equal numbers share their mean. [n] kDouble.
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

// Of columns [n, L].
using Formula = std::function<
    torch::Tensor(const torch::Tensor& scores, const torch::Tensor& targets)>;

Formula over_columns(
    torch::Tensor (*of)(const torch::Tensor&, const torch::Tensor&)) {
  return [of](const torch::Tensor& scores, const torch::Tensor& right) {
    Tensors values;
    for (int64_t i = 0; i < scores.size(1); ++i) {
      values.push_back(
          of(scores.select(1, i).contiguous(),
             right.select(1, i).to(torch::kDouble)));
    }
    return torch::stack(values).nanmean();
  };
}

// From what a model answers, the columns that are ranked.
using Columns = std::function<std::pair<torch::Tensor, torch::Tensor>(
    const torch::Tensor& outputs,
    const torch::Tensor& targets)>;

class RankMetric final : public MetricImpl {
 public:
  RankMetric(
      std::string name,
      Columns columns,
      Formula formula,
      bool counts_classes)
      : name_(std::move(name)),
        columns_(std::move(columns)),
        formula_(std::move(formula)),
        counts_classes_(counts_classes) {}

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  bool counts_classes() const override { return counts_classes_; }
  void reset() override {
    scores_.clear();
    targets_.clear();
  }

  void update(const Tensors& outputs, const Tensors& targets) override {
    auto [scores, right] = columns_(outputs[0], targets[0]);
    // Copies: the next batch may be made in the same memory.
    scores_.push_back(scores.clone());
    targets_.push_back(right.clone());
  }

  void sync(const AllReduce& all_reduce) override {
    TERN_CHECK_VALUE(
        !scores_.empty(),
        "[{}] this process has seen no batch, so that it knows no classes; "
        "use fewer processes or more data.",
        name_);
    scores_ = {all_reduce.gather(torch::cat(scores_))};
    targets_ = {all_reduce.gather(torch::cat(targets_))};
  }

  torch::Tensor compute() const override {
    if (scores_.empty()) return torch::full({}, std::nan(""), torch::kDouble);
    return formula_(torch::cat(scores_), torch::cat(targets_));
  }

 private:
  std::string name_;
  Columns columns_;
  Formula formula_;
  bool counts_classes_;
  Tensors scores_, targets_;
};

Metric of_classes(const char* name, Formula formula) {
  const auto columns =
      [name](const torch::Tensor& outputs, const torch::Tensor& targets) {
        torch::Tensor scores, classes;
        int64_t count = 2;
        if (is_binary(outputs, targets)) {
          scores = outputs.reshape({-1, 1});
          classes = targets.reshape(-1).to(torch::kLong);
        } else {
          std::tie(scores, classes) = [&] {
            const auto [all, numbers] = class_scores(name, outputs, targets);
            return std::pair(all.softmax(1), numbers);
          }();
          count = scores.size(1);
          if (count == 2) scores = scores.narrow(1, 1, 1);
        }
        torch::Tensor right = count == 2
                                  ? classes.unsqueeze(1)
                                  : classes.unsqueeze(1) ==
                                        torch::arange(count, classes.options());
        const torch::Tensor counted = is_class(classes, count);
        return std::pair(
            scores.index({counted}),
            right.to(torch::kByte).index({counted}));
      };
  return std::make_shared<RankMetric>(name, columns, std::move(formula), true);
}

Metric of_pairs(const char* name, Formula formula, bool is_flat) {
  const auto columns = [name, is_flat](
                           const torch::Tensor& outputs,
                           const torch::Tensor& targets) {
    torch::Tensor wanted = in_shape_of(name, outputs, targets);
    if (is_flat) {
      return std::pair(outputs.reshape({-1, 1}), wanted.reshape({-1, 1}));
    }
    TERN_CHECK_VALUE(
        outputs.dim() == 2,
        "[{}] outputs have {} dimensions; expected [N, L], a score for each "
        "label.",
        name,
        outputs.dim());
    return std::pair(outputs, wanted.to(torch::kByte));
  };
  return std::make_shared<RankMetric>(name, columns, std::move(formula), false);
}

}  // namespace

Metric roc_auc() {
  return of_classes("roc_auc", over_columns(area_under_curve));
}

Metric average_precision() {
  return of_classes("average_precision", over_columns(precision_on_average));
}

Metric roc_auc_multi() {
  return of_pairs("roc_auc_multi", over_columns(area_under_curve), false);
}

Metric average_precision_multi() {
  return of_pairs(
      "average_precision_multi",
      over_columns(precision_on_average),
      false);
}

Metric spearman_corrcoef() {
  const auto formula = [](const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor x = ranks(a.flatten()), y = ranks(b.flatten());
    const torch::Tensor p = x - x.mean(), t = y - y.mean();
    return (p * t).sum() / (p.square().sum().sqrt() * t.square().sum().sqrt());
  };
  return of_pairs("spearman_corrcoef", formula, true);
}

}  // namespace tern
