#include "tern/vision/predict/photo_geometry.h"

#include <algorithm>
#include <cmath>

#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/decode_predictions.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

namespace {

/// Returns the size of the model's input, after checking the photo's size.
ImageSize input_size(const ImagePreprocessing& what, ImageSize photo) {
  check_size("PhotoGeometry", photo);
  TERN_CHECK_VALUE(
      what.resize != "exact" || photo == ImageSize(what.height, what.width),
      "[PhotoGeometry] the image is {} x {} pixels (height x width); expected "
      "{} x {}, the only size that the model accepts.",
      photo.height,
      photo.width,
      what.height,
      what.width);
  return {what.height, what.width};
}

/// Returns whether boxes [..., 4] (x1, y1, x2, y2) have a positive width and
/// height, [...] kBool.
torch::Tensor has_area(const torch::Tensor& boxes) {
  return (boxes.select(-1, 2) > boxes.select(-1, 0))
      .logical_and(boxes.select(-1, 3) > boxes.select(-1, 1));
}

}  // namespace

PhotoGeometry::PhotoGeometry(const ImagePreprocessing& what, ImageSize photo)
    : PhotoGeometry(ImagePreprocessor(what), input_size(what, photo), photo) {}

PhotoGeometry::PhotoGeometry(
    const ImagePreprocessor& images,
    ImageSize input,
    ImageSize photo) {
  check_size("PhotoGeometry", photo);
  const auto& m = images.matrix(photo).values;
  TORCH_CHECK_VALUE(
      m[1] == 0 && m[3] == 0 && m[6] == 0 && m[7] == 0,
      "[PhotoGeometry] the transforms for evaluation rotate or distort an "
      "image; expected transforms that resize, crop or flip it. Use the others "
      "for training only.");
  x_ = {
      .input = input.width,
      .photo = photo.width,
      .scale = m[0],
      .offset = m[2]};
  y_ = {
      .input = input.height,
      .photo = photo.height,
      .scale = m[4],
      .offset = m[5]};
}

torch::Tensor PhotoGeometry::points_on_photo(
    const torch::Tensor& points) const {
  TERN_CHECK_VALUE(
      points.defined() && points.is_floating_point() && points.dim() > 0 &&
          points.size(-1) == 2,
      "[PhotoGeometry::points_on_photo] the points are {}; expected a "
      "floating-point tensor [..., 2] of x and y, in pixels of the model's "
      "input.",
      shapes_of({points}));
  const auto like = points.options();
  return points * torch::tensor({x_.scale, y_.scale}, like) +
         torch::tensor({x_.offset, y_.offset}, like);
}

torch::Tensor PhotoGeometry::boxes_on_photo(const torch::Tensor& boxes) const {
  TERN_CHECK_VALUE(
      boxes.defined() && boxes.is_floating_point() && boxes.dim() > 0 &&
          boxes.size(-1) == 4,
      "[PhotoGeometry::boxes_on_photo] the boxes are {}; expected a "
      "floating-point tensor [..., 4] of x1, y1, x2, y2, in pixels of the "
      "model's input.",
      shapes_of({boxes}));
  const torch::Tensor corners = points_on_photo(boxes.unflatten(-1, {2, 2}));
  const torch::Tensor clipped = torch::stack(
      {corners.select(-1, 0).clamp(0, x_.photo),
       corners.select(-1, 1).clamp(0, y_.photo)},
      -1);
  // A flip swaps the edges of a box.
  return torch::cat({clipped.amin(-2), clipped.amax(-2)}, -1);
}

Tensors PhotoGeometry::detections_on_photo(const Tensors& detections) const {
  TERN_CHECK_VALUE(
      detections.size() == 3 && detections[1].dim() == 1 &&
          detections[2].sizes() == detections[1].sizes() &&
          detections[0].dim() == 2 &&
          detections[0].size(0) == detections[1].size(0),
      "[PhotoGeometry::detections_on_photo] the detections are {}; expected "
      "boxes [D, 4], scores [D] and labels [D].",
      shapes_of(detections));
  const torch::Tensor boxes = boxes_on_photo(detections[0]);
  const torch::Tensor is_none =
      (detections[2] < 0).logical_or(has_area(boxes).logical_not());
  // Moves the others to the front, in their order.
  const torch::Tensor order = is_none.to(torch::kByte)
                                  .argsort(
                                      /*stable=*/true,
                                      /*dim=*/0,
                                      /*descending=*/false);
  return {
      boxes.masked_fill(is_none.unsqueeze(1), 0).index_select(0, order),
      detections[1].masked_fill(is_none, 0).index_select(0, order),
      detections[2].masked_fill(is_none, -1).index_select(0, order)};
}

/// For each row (or column) of the photo, the two values of a map to
/// interpolate between.
struct PhotoGeometry::Samples {
  int64_t begin = 0;             // first row that the model saw
  torch::Tensor first, second;   // [count] kLong
  torch::Tensor second_weights;  // [count] kFloat
};

PhotoGeometry::Samples PhotoGeometry::samples_of(
    const Axis& axis,
    int64_t map) {
  const double per_pixel =
      static_cast<double>(map) / static_cast<double>(axis.input);
  const auto on_map = [&](double place) {
    return (place - axis.offset) / axis.scale * per_pixel;
  };
  const auto size = static_cast<double>(map);
  // Excludes the padding around the photo, so that values at the photo's edge
  // are not interpolated with padding.
  const double begin = std::max(on_map(0), 0.0);
  const double end = std::min(on_map(static_cast<double>(axis.photo)), size);
  const double inset = std::min(0.5, (end - begin) / 2);
  Samples samples;
  std::vector<int64_t> first, second;
  std::vector<float> weights;
  for (int64_t i = 0; i < axis.photo; ++i) {
    const double place = on_map(static_cast<double>(i) + 0.5);
    if (place < 0 || place > size) continue;
    if (first.empty()) samples.begin = i;
    // Relative to the center of the first pixel.
    const double within = std::clamp(place, begin + inset, end - inset) - 0.5;
    const double floor = std::clamp(std::floor(within), 0.0, size - 1);
    first.push_back(static_cast<int64_t>(floor));
    second.push_back(std::min(first.back() + 1, map - 1));
    weights.push_back(static_cast<float>(std::clamp(within - floor, 0.0, 1.0)));
  }
  samples.first = torch::tensor(first, torch::kLong);
  samples.second = torch::tensor(second, torch::kLong);
  samples.second_weights = torch::tensor(weights, torch::kFloat);
  return samples;
}

torch::Tensor PhotoGeometry::map_on_photo(const torch::Tensor& map) const {
  TERN_CHECK_VALUE(
      map.defined() && map.is_floating_point() && map.dim() == 3 &&
          map.numel() > 0,
      "[PhotoGeometry::map_on_photo] the map is {}; expected a floating-point "
      "tensor [C, h, w], over the whole input of the model.",
      shapes_of({map}));
  const Samples rows = samples_of(y_, map.size(1));
  const Samples columns = samples_of(x_, map.size(2));
  torch::Tensor result =
      torch::zeros({map.size(0), y_.photo, x_.photo}, torch::kFloat);
  const torch::Tensor seen =
      result.narrow(1, rows.begin, rows.first.size(0))
          .narrow(2, columns.begin, columns.first.size(0));
  const torch::Tensor values = map.detach().to(torch::kCPU, torch::kFloat);
  // One channel at a time, to limit memory for large photos and many classes.
  for (int64_t c = 0; c < map.size(0); ++c) {
    const torch::Tensor high = torch::lerp(
        values[c].index_select(0, rows.first),
        values[c].index_select(0, rows.second),
        rows.second_weights.unsqueeze(1));
    seen[c].copy_(torch::lerp(
        high.index_select(1, columns.first),
        high.index_select(1, columns.second),
        columns.second_weights));
  }
  return result;
}

Tensors PhotoGeometry::outputs_on_photo(
    const Tensors& outputs,
    const std::vector<OutputInfo>& info,
    bool masks) const {
  Tensors result = outputs;
  size_t done = 0;
  if (are_detections(outputs, info)) {
    std::ranges::move(
        detections_on_photo({outputs[0], outputs[1], outputs[2]}),
        result.begin());
    done = 3;
  }
  for (size_t i = done; i < outputs.size() && i < info.size(); ++i) {
    const torch::Tensor& output = outputs[i];
    const TargetKind kind = info[i].kind;
    if (!output.defined()) continue;
    const auto has_shape = [&](int64_t columns) {
      return output.dim() == 2 && output.size(1) == columns;
    };
    if (kind == TargetKind::points && has_shape(2)) {
      result[i] = points_on_photo(output);
    } else if (kind == TargetKind::boxes && has_shape(4)) {
      result[i] = boxes_on_photo(output);
    } else if (masks && output.dim() == 3 && is_mask(output, info[i])) {
      result[i] = map_on_photo(output);
    }
  }
  return result;
}

bool has_places(const std::vector<OutputInfo>& info) {
  return std::ranges::any_of(info, [](const OutputInfo& output) {
    return output.kind == TargetKind::boxes ||
           output.kind == TargetKind::points;
  });
}

}  // namespace tern
