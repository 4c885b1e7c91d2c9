#include "tern/vision/interpret/confusion_matrix.h"

#include <algorithm>
#include <functional>

#include <fmt/ranges.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/interpret/matrix_picture.h"

namespace tern {

namespace {

bool has_integers(const torch::Tensor& tensor) {
  return tensor.defined() &&
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// True if preds are [N, C, ...] for targets [N, ...].
bool are_scores_of(const torch::Tensor& preds, const torch::Tensor& targets) {
  if (preds.dim() != targets.dim() + 1 || preds.size(1) < 2) return false;
  std::vector<int64_t> sizes = preds.sizes().vec();
  sizes.erase(sizes.begin() + 1);
  return targets.sizes() == sizes;
}

struct ClassIndices {
  torch::Tensor predicted, actual;  // [M] kLong on the CPU
  torch::Tensor has_nan;            // [M] kBool; undefined for class indices
  int64_t classes = 0;              // 0 if unknown
};

ClassIndices class_indices(
    const torch::Tensor& preds,
    const torch::Tensor& targets) {
  TERN_CHECK_VALUE(
      has_integers(targets) && targets.dim() >= 1,
      "[ConfusionMatrix] targets are {}; expected the class index of each "
      "sample, [N] or [N, ...] of an integer dtype.",
      shapes_of({targets}));
  const bool has_scores =
      preds.defined() && preds.is_floating_point() && preds.dim() >= 2;
  const bool fits =
      has_scores ? are_scores_of(preds, targets)
                 : has_integers(preds) && preds.sizes() == targets.sizes();
  TERN_CHECK_VALUE(
      fits,
      "[ConfusionMatrix] preds are {} and targets {}; expected scores of two "
      "or more classes, [N, C, ...] of a floating-point dtype, or class "
      "indices with the shape of targets and an integer dtype. For "
      "probabilities of class 1 pass (preds > 0.5).to(torch::kLong).",
      shapes_of({preds}),
      shapes_of({targets}));
  ClassIndices found;
  found.actual = targets.to(torch::kCPU, torch::kLong).reshape({-1});
  if (!has_scores) {
    found.predicted = preds.to(torch::kCPU, torch::kLong).reshape({-1});
    return found;
  }
  found.predicted = preds.detach().argmax(1).cpu().reshape({-1});
  found.has_nan = preds.detach().isnan().any(1).cpu().reshape({-1});
  found.classes = preds.size(1);
  return found;
}

// Returns the index of the first true element, or -1 if there is none.
int64_t first_true(const torch::Tensor& flags) {
  return flags.any().item<bool>() ? flags.nonzero()[0][0].item<int64_t>() : -1;
}

void check_are_classes(
    const char* what,
    const torch::Tensor& numbers,
    const torch::Tensor& is_counted,
    int64_t classes) {
  const int64_t at = first_true(
      is_counted.logical_and((numbers < 0).logical_or(numbers >= classes)));
  TERN_CHECK_VALUE(
      at < 0,
      "[ConfusionMatrix] {}[{}], counted over all dimensions, is {}; expected "
      "a class from 0 to {}, or a target of ignore_index. Set num_classes if "
      "there are more.",
      what,
      at,
      numbers[at].item<int64_t>(),
      classes - 1);
}

void check_no_nan(const ClassIndices& found, const torch::Tensor& is_counted) {
  if (!found.has_nan.defined()) return;
  const int64_t at = first_true(found.has_nan.logical_and(is_counted));
  TERN_CHECK_VALUE(
      at < 0,
      "[ConfusionMatrix] a score of preds[{}], counted over all dimensions of "
      "targets, is NaN, which predicts no class; expected numbers. Find out "
      "why the model returns NaN for that sample.",
      at);
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(
    const torch::Tensor& preds,
    const torch::Tensor& targets,
    const Options& options)
    : ignore_index_(options.ignore_index) {
  const ClassIndices found = class_indices(preds, targets);
  const torch::Tensor is_counted = found.actual != ignore_index_;
  check_no_nan(found, is_counted);
  TERN_CHECK_VALUE(
      options.num_classes >= 0 &&
          (found.classes == 0 || options.num_classes == 0 ||
           options.num_classes == found.classes),
      "[ConfusionMatrix] num_classes is {}, but preds have scores of {} "
      "classes; expected 0 or that number.",
      options.num_classes,
      found.classes);
  int64_t count = found.classes;
  if (count == 0) count = options.num_classes;
  if (count == 0) count = std::ssize(options.classes);
  const torch::Tensor actual = found.actual.masked_select(is_counted);
  const torch::Tensor predicted = found.predicted.masked_select(is_counted);
  if (count == 0 && actual.numel() > 0) {
    count = std::max(
                actual.max().item<int64_t>(),
                predicted.max().item<int64_t>()) +
            1;
  }
  TORCH_CHECK_VALUE(
      count > 0,
      "[ConfusionMatrix] there is no sample, and the number of classes is "
      "unknown; expected samples, class names or num_classes.");
  TERN_CHECK_VALUE(
      std::ssize(options.classes) <= count,
      "[ConfusionMatrix] got {} class names for {} classes; expected at most "
      "one name per class.",
      options.classes.size(),
      count);
  check_are_classes("targets", found.actual, is_counted, count);
  check_are_classes("preds", found.predicted, is_counted, count);
  names_ = class_names(options.classes, count);
  counts_ = torch::bincount(actual * count + predicted, {}, count * count)
                .view({count, count});
}

std::vector<Confusion> ConfusionMatrix::most_confused(int64_t min_count) const {
  const auto cells = counts_.accessor<int64_t, 2>();
  std::vector<Confusion> pairs;
  for (int64_t actual = 0; actual < cells.size(0); ++actual) {
    for (int64_t predicted = 0; predicted < cells.size(1); ++predicted) {
      const int64_t count = cells[actual][predicted];
      if (actual != predicted && count > 0 && count >= min_count) {
        pairs.push_back({names_[actual], names_[predicted], count});
      }
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), &Confusion::count);
  return pairs;
}

ClassificationReport ConfusionMatrix::report() const {
  std::vector<std::string> names = names_;
  torch::Tensor counted = torch::arange(counts_.size(0));
  if (ignore_index_ >= 0 && ignore_index_ < counts_.size(0)) {
    names.erase(names.begin() + ignore_index_);
    counted = counted.masked_select(counted != ignore_index_);
  }
  return classification_report(
      names,
      counts_.diagonal().index_select(0, counted),
      counts_.sum(0).index_select(0, counted),
      counts_.sum(1).index_select(0, counted));
}

void ConfusionMatrix::plot(const std::filesystem::path& file, bool normalize)
    const {
  save_page(
      file,
      draw_confusion_matrix(counts_, names_, normalize),
      "ConfusionMatrix::plot");
}

}  // namespace tern
