#include "tern/learner/compare_predictions.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/boxes/box_ops.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// Adds up the differences of all samples.
class Comparison {
 public:
  void add(const Prediction& one, const Prediction& other) {
    const size_t outputs = other.outputs.size();
    TERN_CHECK_VALUE(
        one.kind == other.kind && one.outputs.size() == outputs,
        "[compare_predictions] the predictions for sample {} are of different "
        "kinds; expected predictions of the same model.",
        result_.samples);
    const double answers = answers_, equal = equal_;
    if (outputs == 0) add_output(one, other);
    for (size_t i = 0; i < outputs; ++i) {
      add_output(one.outputs[i], other.outputs[i]);
    }
    if (equal_ - equal < answers_ - answers) {
      result_.changed.push_back(result_.samples);
    }
    ++result_.samples;
  }

  PredictionDifference result() const {
    PredictionDifference result = result_;
    if (has_answers_) result.same = answers_ > 0 ? equal_ / answers_ : 1;
    const double error = std::sqrt(squared_difference_);
    result.relative_error = error == 0 ? 0 : error / std::sqrt(squared_);
    return result;
  }

 private:
  void add_output(const Prediction& one, const Prediction& other) {
    if (other.kind == TargetKind::boxes) return add_boxes(one, other);
    add_numbers(one.probabilities, other.probabilities);
    if (other.mask.defined()) {
      const torch::Tensor is_equal = one.mask == other.mask;
      add_answers(
          is_equal.sum().item<double>(),
          static_cast<double>(is_equal.numel()));
    } else if (
        other.kind == TargetKind::category ||
        other.kind == TargetKind::multi_category) {
      add_answers(one.indices == other.indices ? 1 : 0, 1);
    }
  }

  // Each box of the reference, best first, takes the box that overlaps it most.
  void add_boxes(const Prediction& one, const Prediction& other) {
    const torch::Tensor overlap = box_iou(other.boxes, one.boxes).nan_to_num(0);
    const int64_t count = overlap.size(0);
    int64_t pairs = 0;
    for (int64_t i = 0; i < count && overlap.size(1) > 0; ++i) {
      torch::Tensor free = overlap[i];
      for (int64_t k = 0; k < overlap.size(1); ++k) {
        if (one.indices[k] != other.indices[i]) free[k] = 0;
      }
      const auto k = free.argmax().item<int64_t>();
      if (free[k].item<float>() < 0.5F) continue;
      overlap.select(1, k).zero_();
      ++pairs;
      add_numbers(
          torch::tensor(one.scores[k], torch::kDouble),
          torch::tensor(other.scores[i], torch::kDouble));
    }
    // A pair is two boxes.
    add_answers(
        2 * static_cast<double>(pairs),
        static_cast<double>(count + overlap.size(1)));
  }

  void add_answers(double equal, double answers) {
    has_answers_ = true;
    equal_ += equal;
    answers_ += answers;
  }

  void add_numbers(const torch::Tensor& one, const torch::Tensor& other) {
    TERN_CHECK_VALUE(
        one.defined() == other.defined() &&
            (!one.defined() || one.sizes() == other.sizes()),
        "[compare_predictions] the outputs for sample {} are {}, and {} in the "
        "reference; expected equal sizes.",
        result_.samples,
        shapes_of({one}),
        shapes_of({other}));
    if (!one.defined() || one.numel() == 0) return;
    const torch::Tensor a = one.to(torch::kDouble),
                        b = other.to(torch::kDouble);
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
  bool has_answers_ = false;
  double answers_ = 0, equal_ = 0;
  double squared_difference_ = 0, squared_ = 0;
};

}  // namespace

std::string PredictionDifference::to_string() const {
  return fmt::format(
      "{} sample{}: {}outputs differ by at most {:.3g}, relative error {:.3g}",
      samples,
      samples == 1 ? "" : "s",
      same ? fmt::format("{:.4g}% of the answers are equal; ", 100 * *same)
           : "",
      largest_difference,
      relative_error);
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
  Comparison comparison;
  for (size_t i = 0; i < predictions.size(); ++i) {
    comparison.add(predictions[i], reference[i]);
  }
  return comparison.result();
}

}  // namespace tern
