// Detection boxes.
#include <algorithm>
#include <array>
#include <numeric>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

struct Box {
  float x1, y1, x2, y2;

  float area() const { return (x2 - x1) * (y2 - y1); }
};

// Converts two opposite corners in any order, or the center and the size.
Box box_of(const float* given, bool is_center) {
  if (is_center) {
    const float width = given[2] / 2, height = given[3] / 2;
    return {
        given[0] - width,
        given[1] - height,
        given[0] + width,
        given[1] + height};
  }
  return {
      std::min(given[0], given[2]),
      std::min(given[1], given[3]),
      std::max(given[0], given[2]),
      std::max(given[1], given[3])};
}

bool overlap_more(const Box& a, const Box& b, float threshold) {
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  if (!(width > 0 && height > 0)) return false;
  const float both = width * height;
  return both / (a.area() + b.area() - both) > threshold;
}

struct Thresholds {
  int64_t most;  // boxes per class
  float iou;
  const float* score;  // null: none
};

// Returns the indices of the boxes that are kept, by descending score.
Integers kept_boxes(
    const std::vector<Box>& boxes,
    const float* scores,
    const Thresholds& thresholds) {
  Integers order(boxes.size()), kept;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int64_t i) {
    return scores[i];
  });
  for (const int64_t i : order) {
    if (std::ssize(kept) >= thresholds.most) break;
    if (thresholds.score && !(scores[i] > *thresholds.score)) continue;
    const bool is_gone = std::ranges::any_of(kept, [&](int64_t better) {
      return overlap_more(boxes[better], boxes[i], thresholds.iou);
    });
    if (!is_gone) kept.push_back(i);
  }
  return kept;
}

// Returns a single number, or `usual` if it is not given.
template <class T>
T number_of(const Operation& op, size_t i, T usual) {
  if (!op.has(i)) return usual;
  const Tensor& x = op.input(i);
  TERN_CHECK_VALUE(
      x.numel() == 1 && x.scalar_type() == c10::CppTypeToScalarType<T>::value,
      "its input {} has {} numbers of {}; expected one of {}",
      i,
      x.numel(),
      torch::toString(x.scalar_type()),
      torch::toString(c10::CppTypeToScalarType<T>::value));
  return x.item<T>();
}

// Boxes [N, K, 4] and scores [N, C, K] -> [S, 3], image, class and box.
std::vector<Tensor> non_max_suppression(const Operation& op) {
  const Tensor boxes = op.floats(0).contiguous();
  const Tensor scores = op.floats(1).contiguous();
  TERN_CHECK_VALUE(
      boxes.dim() == 3 && boxes.size(2) == 4 && scores.dim() == 3 &&
          scores.size(0) == boxes.size(0) && scores.size(2) == boxes.size(1) &&
          boxes.scalar_type() == torch::kFloat &&
          scores.scalar_type() == torch::kFloat,
      "it takes boxes and scores of {} and {} numbers; expected [N, K, 4] and "
      "[N, C, K] Float",
      boxes.numel(),
      scores.numel());
  const auto iou = number_of<float>(op, 3, 0);
  const auto score = number_of<float>(op, 4, 0);
  const auto most = number_of<int64_t>(op, 2, 0);
  TERN_CHECK_VALUE(
      iou >= 0 && iou <= 1,
      "its iou_threshold is {}; expected one in 0..1",
      iou);
  const bool is_center = op.integer("center_point_box", 0) == 1;
  const int64_t count = boxes.size(1), classes = scores.size(1);
  std::vector<int64_t> selected;
  for (int64_t image = 0; image < boxes.size(0); ++image) {
    std::vector<Box> own;
    for (int64_t i = 0; i < count; ++i) {
      const float* const all = boxes.const_data_ptr<float>();
      own.push_back(box_of(all + 4 * (image * count + i), is_center));
    }
    for (int64_t c = 0; c < classes; ++c) {
      const float* const all = scores.const_data_ptr<float>();
      const Integers kept = kept_boxes(
          own,
          all + (image * classes + c) * count,
          {most, iou, op.has(4) ? &score : nullptr});
      for (const int64_t i : kept) {
        selected.insert(selected.end(), {image, c, i});
      }
    }
  }
  return {torch::tensor(selected, torch::kLong).view({-1, 3})};
}

}  // namespace

void add_boxes(ComputeTable& table) {
  table["NonMaxSuppression"] = non_max_suppression;
}

}  // namespace tern::onnx
