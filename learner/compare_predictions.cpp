#include "tern/learner/compare_predictions.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/boxes/box_ops.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// Adds up the differences of one output of all samples.
class Comparison {
 public:
  void add(const Prediction& own, const Prediction& reference) {
    TERN_CHECK_VALUE(
        own.kind == reference.kind,
        "[compare_predictions] the predictions for sample {} are of different "
        "kinds; expected predictions of the same model.",
        result_.samples);
    const double different = labels_ - equal_;
    if (reference.kind == TargetKind::boxes) {
      add_boxes(own, reference);
    } else {
      add_numbers(own.probabilities, reference.probabilities);
      add_classes(own, reference);
    }
    if (labels_ - equal_ > different) {
      result_.changed.push_back(result_.samples);
    }
    ++result_.samples;
  }

  PredictionDifference result() const {
    PredictionDifference result = result_;
    if (has_labels_) result.equal_labels = labels_ > 0 ? equal_ / labels_ : 1;
    const double error = std::sqrt(squared_difference_);
    result.relative_error = error == 0 ? 0 : error / std::sqrt(squared_);
    return result;
  }

 private:
  void add_classes(const Prediction& own, const Prediction& reference) {
    if (reference.mask.defined()) {
      const torch::Tensor is_equal = own.mask == reference.mask;
      add_labels(
          is_equal.sum().item<double>(),
          static_cast<double>(is_equal.numel()));
    } else if (
        reference.kind == TargetKind::category ||
        reference.kind == TargetKind::multi_category) {
      add_labels(own.indices == reference.indices ? 1 : 0, 1);
    }
  }

  // Each box of the reference, best first, is matched with the box that
  // overlaps it most, if none has taken that box.
  void add_boxes(const Prediction& own, const Prediction& reference) {
    const auto classes_of = [](const Prediction& p) {
      return torch::tensor(p.indices, torch::kLong);
    };
    const torch::Tensor is_same_class =
        classes_of(reference).unsqueeze(1) == classes_of(own).unsqueeze(0);
    const torch::Tensor overlap =
        box_iou(reference.boxes, own.boxes).nan_to_num(0) * is_same_class;
    std::vector<double> own_scores, reference_scores;
    std::vector<bool> is_matched(own.scores.size());
    double matches = 0;
    for (size_t i = 0; i < reference.scores.size(); ++i) {
      reference_scores.push_back(reference.scores[i]);
      own_scores.push_back(0);
      if (own.scores.empty()) continue;
      const torch::Tensor row = overlap[static_cast<int64_t>(i)];
      const auto best = row.argmax().item<int64_t>();
      if (row[best].item<float>() < 0.5F) continue;
      own_scores.back() = own.scores[best];
      is_matched[best] = true;
      overlap.select(1, best).zero_();
      ++matches;
    }
    for (size_t i = 0; i < own.scores.size(); ++i) {
      if (is_matched[i]) continue;
      own_scores.push_back(own.scores[i]);
      reference_scores.push_back(0);
    }
    const auto boxes =
        static_cast<double>(own.scores.size() + reference.scores.size());
    add_labels(2 * matches, boxes);  // a match is two boxes
    add_numbers(
        torch::tensor(own_scores, torch::kDouble),
        torch::tensor(reference_scores, torch::kDouble));
  }

  void add_labels(double equal, double labels) {
    has_labels_ = true;
    equal_ += equal;
    labels_ += labels;
  }

  void add_numbers(const torch::Tensor& own, const torch::Tensor& reference) {
    TERN_CHECK_VALUE(
        own.defined() == reference.defined() &&
            (!own.defined() || own.sizes() == reference.sizes()),
        "[compare_predictions] the outputs for sample {} are {}, and {} in the "
        "reference; expected equal sizes.",
        result_.samples,
        shapes_of({own}),
        shapes_of({reference}));
    if (!own.defined() || own.numel() == 0) return;
    const torch::Tensor a = own.to(torch::kDouble);
    const torch::Tensor b = reference.to(torch::kDouble);
    const torch::Tensor is_equal =
        (a == b).logical_or(a.isnan().logical_and(b.isnan()));
    const torch::Tensor difference = (a - b).abs().masked_fill(is_equal, 0);
    const double largest = difference.max().item<double>();
    if (std::isnan(largest) || largest > result_.largest_difference) {
      result_.largest_difference = largest;
    }
    squared_difference_ += difference.square().sum().item<double>();
    squared_ += b.nan_to_num(0, 0, 0).square().sum().item<double>();
  }

  PredictionDifference result_;
  bool has_labels_ = false;
  double labels_ = 0, equal_ = 0;
  double squared_difference_ = 0, squared_ = 0;
};

// The prediction of one output. A Prediction made by hand may have no list.
const Prediction& output_of(const Prediction& prediction, size_t output) {
  return prediction.outputs.empty() ? prediction : prediction.outputs[output];
}

std::string line_of(const PredictionDifference& difference) {
  const std::string labels = difference.equal_labels
                                 ? fmt::format(
                                       "{:.4g}% of the labels are equal; ",
                                       100 * *difference.equal_labels)
                                 : "";
  return fmt::format(
      "{} sample{}: {}outputs differ by at most {:.3g}, relative error {:.3g}",
      difference.samples,
      difference.samples == 1 ? "" : "s",
      labels,
      difference.largest_difference,
      difference.relative_error);
}

}  // namespace

std::string PredictionDifference::to_string() const {
  if (outputs.size() < 2) return line_of(*this);
  std::vector<std::string> lines;
  for (size_t i = 0; i < outputs.size(); ++i) {
    lines.push_back(fmt::format("output {}: {}", i, line_of(outputs[i])));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

PredictionDifference compare_predictions(
    const std::vector<Prediction>& predictions,
    const std::vector<Prediction>& reference) {
  TERN_CHECK_VALUE(
      predictions.size() == reference.size(),
      "[compare_predictions] there are {} predictions and {} in the reference; "
      "expected predictions for the same samples.",
      predictions.size(),
      reference.size());
  const size_t outputs =
      reference.empty() ? 1 : std::max<size_t>(1, reference[0].outputs.size());
  std::vector<Comparison> comparisons(outputs);
  for (size_t i = 0; i < reference.size(); ++i) {
    for (const Prediction* one : {&predictions[i], &reference[i]}) {
      TERN_CHECK_VALUE(
          std::max<size_t>(1, one->outputs.size()) == outputs,
          "[compare_predictions] sample {} has {} outputs and sample 0 of the "
          "reference {}; expected predictions of the same model.",
          i,
          std::max<size_t>(1, one->outputs.size()),
          outputs);
    }
    for (size_t k = 0; k < outputs; ++k) {
      comparisons[k].add(
          output_of(predictions[i], k),
          output_of(reference[i], k));
    }
  }
  std::vector<PredictionDifference> all;
  all.reserve(outputs);
  for (const Comparison& comparison : comparisons) {
    all.push_back(comparison.result());
  }
  PredictionDifference result = all[0];
  result.outputs = std::move(all);
  return result;
}

}  // namespace tern
