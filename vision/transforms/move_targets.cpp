#include "tern/vision/transforms/move_targets.h"

#include <algorithm>
#include <numeric>

#include "tern/data/support/error_text.h"
#include "tern/kernels/boxes/move_boxes.h"
#include "tern/kernels/check.h"

namespace tern {
namespace {

/// Returns, for each point, the index of the point that replaces it in a
/// flipped image.
torch::Tensor mirrored_order(int64_t points, const AnnotationOptions& options) {
  std::vector<int64_t> order(static_cast<size_t>(points));
  std::iota(order.begin(), order.end(), 0);
  for (const auto& [one, other] : options.flip_pairs) {
    TERN_CHECK_VALUE(
        one < points && other < points,
        "[move_points] flip_pairs has the pair {} and {}, but there are {} "
        "points; expected indices from 0 to {}.",
        one,
        other,
        points,
        points - 1);
    std::swap(order[one], order[other]);
  }
  return torch::tensor(order);
}

}  // namespace

void check_annotation_options(
    const char* where,
    const AnnotationOptions& options) {
  TERN_CHECK_VALUE(
      options.min_share >= 0 && options.min_share <= 1,
      "[{}] min_share is {}; expected a fraction of a box's area from 0 to 1.",
      where,
      options.min_share);
  std::vector<int64_t> named;
  for (const auto& [one, other] : options.flip_pairs) {
    named.insert(named.end(), {one, other});
  }
  std::ranges::sort(named);
  TERN_CHECK_VALUE(
      named.empty() ||
          (named[0] >= 0 && std::ranges::adjacent_find(named) == named.end()),
      "[{}] flip_pairs has a point twice, or a negative index; expected each "
      "point in at most one pair, with indices >= 0.",
      where);
}

void move_boxes(
    const Tensors& targets,
    const std::vector<Matrix3>& matrices,
    ImageSize size,
    const AnnotationOptions& options) {
  const size_t count = targets.size();
  TERN_CHECK_VALUE(
      count == 2 || count == 3 || count == 5,
      "[move_boxes] the targets are {}; expected boxes [N, K, 4] and labels "
      "[N, K], then areas [N, K], then crowd regions [N, C, 4] and their "
      "labels [N, C].",
      shapes_of(targets));
  const auto move = [&](const torch::Tensor& boxes,
                        const torch::Tensor& labels,
                        const torch::Tensor& areas) {
    move_boxes_(
        boxes,
        labels,
        areas,
        matrices,
        size.height,
        size.width,
        options.min_share);
  };
  move(targets[0], targets[1], count > 2 ? targets[2] : torch::Tensor());
  if (count == 5) move(targets[3], targets[4], {});
}

void move_points(
    const Tensors& targets,
    const std::vector<Matrix3>& matrices,
    ImageSize size,
    const AnnotationOptions& options) {
  TERN_CHECK_VALUE(
      targets.size() == 2,
      "[move_points] the targets are {}; expected points [N, P, 2] and the "
      "visibility of each, [N, P].",
      shapes_of(targets));
  const torch::Tensor &points = targets[0], &visible = targets[1];
  move_points_(points, visible, matrices, size.height, size.width);
  const auto is_mirrored = [](const Matrix3& matrix) {
    return matrix.determinant() < 0;
  };
  if (options.flip_pairs.empty() ||
      std::ranges::none_of(matrices, is_mirrored)) {
    return;
  }
  torch::Tensor mirrored =
      torch::empty({std::ssize(matrices), 1, 1}, torch::kBool);
  std::ranges::transform(
      matrices,
      mirrored.mutable_data_ptr<bool>(),
      is_mirrored);
  mirrored = mirrored.to(points.device());
  const torch::Tensor order =
      mirrored_order(points.size(1), options).to(points.device());
  points.copy_(torch::where(mirrored, points.index_select(1, order), points));
  visible.copy_(torch::where(
      mirrored.squeeze(2),
      visible.index_select(1, order),
      visible));
}

}  // namespace tern
