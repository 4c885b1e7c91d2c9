#include "tern/kernels/boxes/move_boxes.h"

#include <ATen/ops/empty.h>

#include "tern/kernels/boxes/move_boxes_math.h"
#include "tern/kernels/check.h"
#include "tern/kernels/dispatch.h"

namespace tern {
namespace {

/// \param numbers  Numbers per row: 4 for a box, 2 for a point.
/// \param flags    One value per row: a label, or the visibility.
void check(
    const char* where,
    const torch::Tensor& rows,
    int64_t numbers,
    const torch::Tensor& flags,
    torch::ScalarType flag_type,
    size_t matrices) {
  check_device(where, rows.device());
  TERN_CHECK_VALUE(
      rows.dim() == 3 && rows.size(2) == numbers &&
          rows.scalar_type() == at::kFloat && rows.is_contiguous(),
      "[{}] the first tensor is {}; expected contiguous [N, K, {}] kFloat.",
      where,
      describe(rows),
      numbers);
  TERN_CHECK_VALUE(
      flags.sizes() == rows.sizes().slice(0, 2) &&
          flags.scalar_type() == flag_type && flags.is_contiguous() &&
          flags.device() == rows.device(),
      "[{}] the second tensor is {} and the first {}; expected contiguous [N, "
      "K] {} on the same device.",
      where,
      describe(flags),
      describe(rows),
      flag_type == at::kLong ? "kLong" : "kBool");
  TERN_CHECK_VALUE(
      matrices == static_cast<size_t>(rows.size(0)),
      "[{}] got {} matrices for {}; expected one per image.",
      where,
      matrices,
      describe(rows));
}

torch::Tensor on_device(
    const std::vector<Matrix3>& matrices,
    torch::Device device) {
  torch::Tensor values = at::empty(
      {static_cast<int64_t>(matrices.size()), 9},
      at::TensorOptions(at::kDouble).pinned_memory(device.is_cuda()));
  double* to = values.mutable_data_ptr<double>();
  for (const Matrix3& matrix : matrices) {
    to = std::copy(matrix.values.begin(), matrix.values.end(), to);
  }
  return values.to(device, /*non_blocking=*/true);
}

}  // namespace

void move_boxes_(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& areas,
    const std::vector<Matrix3>& matrices,
    int64_t height,
    int64_t width,
    double min_share) {
  check("move_boxes_", boxes, 4, labels, at::kLong, matrices.size());
  TERN_CHECK_VALUE(
      !areas.defined() ||
          (areas.sizes() == labels.sizes() &&
           areas.scalar_type() == at::kFloat && areas.is_contiguous() &&
           areas.device() == boxes.device()),
      "[move_boxes_] areas is {} and boxes is {}; expected contiguous [N, K] "
      "kFloat on the same device, or an undefined tensor.",
      describe(areas),
      describe(boxes));
  if (labels.numel() == 0) return;
  const torch::Tensor there = on_device(matrices, boxes.device());
  MoveArgs args{};
  args.coordinates = boxes.mutable_data_ptr<float>();
  args.labels = labels.mutable_data_ptr<int64_t>();
  if (areas.defined()) args.areas = areas.mutable_data_ptr<float>();
  args.matrices = there.const_data_ptr<double>();
  args.count = labels.numel();
  args.per_image = labels.size(1);
  args.height = static_cast<double>(height);
  args.width = static_cast<double>(width);
  args.min_share = min_share;
  dispatch_device(
      boxes.device(),
      [&] {
        for (int64_t row = 0; row < args.count; ++row) move_box(args, row);
      },
      [&](auto stream) { return move_boxes_cuda(args, stream); });
}

void move_points_(
    const torch::Tensor& points,
    const torch::Tensor& visible,
    const std::vector<Matrix3>& matrices,
    int64_t height,
    int64_t width) {
  check("move_points_", points, 2, visible, at::kBool, matrices.size());
  if (visible.numel() == 0) return;
  const torch::Tensor there = on_device(matrices, points.device());
  MoveArgs args{};
  args.coordinates = points.mutable_data_ptr<float>();
  args.visible = visible.mutable_data_ptr<bool>();
  args.matrices = there.const_data_ptr<double>();
  args.count = visible.numel();
  args.per_image = visible.size(1);
  args.height = static_cast<double>(height);
  args.width = static_cast<double>(width);
  dispatch_device(
      points.device(),
      [&] {
        for (int64_t row = 0; row < args.count; ++row) move_point(args, row);
      },
      [&](auto stream) { return move_points_cuda(args, stream); });
}

}  // namespace tern
