#include "tern/vision/datasets/box_targets.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/datasets/box_checks.h"
#include "tern/vision/decode/decode.h"

namespace tern {
namespace {

constexpr int kCorners = 4;  // numbers of a box

ImageSize turned(ImageSize size) {
  return {size.width, size.height};
}

/// Returns true if the annotations refer to the pixels as stored, before the
/// image is rotated by its EXIF orientation.
/// \param annotated  Image size according to the annotations; 0 x 0: unknown.
bool is_of_stored_pixels(
    const std::string& path,
    const SamplePlan& plan,
    ImageSize annotated,
    AnnotatedPixels pixels) {
  if (plan.exif_orientation == 1) return false;
  if (pixels != AnnotatedPixels::unknown) {
    return pixels == AnnotatedPixels::stored;
  }
  const ImageSize upright = plan.original;
  const bool size_tells =
      plan.exif_orientation >= 5 && upright.height != upright.width;
  if (size_tells && annotated == upright) return false;
  if (size_tells && annotated == turned(upright)) return true;
  const bool is_of_other = annotated != ImageSize{} && annotated != upright &&
                           annotated != turned(upright);
  if (is_of_other) return false;  // check_size then throws
  throw_data_error(
      path,
      "has the EXIF orientation {}, and it is unknown whether its annotations "
      "refer to the stored or to the upright image; expected orientation 1. "
      "Set annotations.pixels to upright or stored.",
      plan.exif_orientation);
}

void check_size(const std::string& path, ImageSize annotated, ImageSize image) {
  if (annotated == ImageSize{} || annotated == image) return;
  throw_data_error(
      path,
      "is {} x {} pixels (width x height), but its annotations are for an "
      "image of {} x {}; expected the same size. Correct the annotations, and "
      "check whether the image was resized after annotation.",
      image.width,
      image.height,
      annotated.width,
      annotated.height);
}

/// Returns the matrix from pixels of the annotated image to pixels of the
/// result.
/// \param stored  True if the annotations refer to the image as stored.
Matrix3 result_from_annotated(const SamplePlan& plan, bool stored) {
  const Matrix3 from_upright = plan.result_from_original();
  if (!stored) return from_upright;
  const int orientation = plan.exif_orientation;
  const ImageSize size =
      orientation >= 5 ? turned(plan.original) : plan.original;
  return from_upright * stored_from_upright(orientation, size).inverse();
}

std::string text_of(const Box& box) {
  return fmt::format("{}, {}, {}, {}", box.x1, box.y1, box.x2, box.y2);
}

void check_box(const std::string& path, const Box& box) {
  if (has_size(box)) return;
  throw_data_error(
      path,
      "has the box {} (x1, y1, x2, y2) of area {}; expected finite numbers, x1 "
      "below x2, y1 below y2 and no negative area. Correct it, or omit it.",
      text_of(box),
      box.area);
}

int64_t class_of(
    const std::map<std::string, int64_t>& numbers,
    const std::string& path,
    const std::string& label) {
  const auto at = numbers.find(label);
  if (at != numbers.end()) return at->second;
  throw_data_error(
      path,
      "has a box of the class '{}', which is not one of the {} classes. "
      "Correct the label, add training images of it, or give the classes.",
      label,
      numbers.size());
}

/// Copies row `index` of `from` to row `slot` of a batch.
void copy_row(
    const torch::Tensor& from,
    int64_t index,
    const torch::Tensor& to,
    int64_t slot) {
  to.select(0, slot).copy_(from.select(0, index));
}

Tensors rows_of(const Tensors& targets, int64_t slot) {
  Tensors rows;
  for (const torch::Tensor& target : targets) {
    rows.push_back(target.narrow(0, slot, 1));
  }
  return rows;
}

}  // namespace

BoxTargets::BoxTargets(
    std::vector<std::string> paths,
    const std::vector<ImageBoxes>& images,
    const std::vector<std::string>& classes,
    const AnnotationOptions& options)
    : ImageTargets(std::ssize(images)),
      paths_(std::move(paths)),
      options_(options) {
  TERN_CHECK_VALUE(
      paths_.size() == images.size(),
      "[BoxTargets] got {} paths and the boxes of {} images; expected the same "
      "number.",
      paths_.size(),
      images.size());
  check_annotation_options("BoxTargets", options);
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : classes) {
    numbers.emplace(name, std::ssize(numbers));
  }
  struct Lists {
    std::vector<float> boxes, areas;
    std::vector<int64_t> labels;
  };
  Lists objects, crowds;
  for (size_t i = 0; i < images.size(); ++i) {
    for (const Box& box : images[i].boxes) {
      check_box(paths_[i], box);
      Lists& lists = box.crowd ? crowds : objects;
      for (const double edge : {box.x1, box.y1, box.x2, box.y2}) {
        lists.boxes.push_back(static_cast<float>(edge));
      }
      lists.areas.push_back(static_cast<float>(box.area));
      lists.labels.push_back(class_of(numbers, paths_[i], box.label));
    }
    image_sizes_.push_back(images[i].image);
    pixels_.push_back(
        options.pixels != AnnotatedPixels::unknown ? options.pixels
                                                   : images[i].pixels);
    for (const auto& [rows, lists] :
         {std::pair{&objects_, &objects}, {&crowds_, &crowds}}) {
      const int64_t end = std::ssize(lists->labels);
      rows->most = std::max(rows->most, end - rows->first.back());
      rows->first.push_back(end);
    }
  }
  for (const auto& [rows, lists] :
       {std::pair{&objects_, &objects}, {&crowds_, &crowds}}) {
    rows->boxes =
        torch::tensor(lists->boxes, torch::kFloat).view({-1, kCorners});
    rows->areas = torch::tensor(lists->areas, torch::kFloat);
    rows->labels = torch::tensor(lists->labels, torch::kLong);
  }
}

Tensors BoxTargets::empty(int64_t count, ImageSize, const BatchContext& context)
    const {
  const int64_t most = objects_.most, most_crowds = crowds_.most;
  return {
      context.empty({count, most, kCorners}, torch::kFloat),
      context.empty({count, most}, torch::kLong),
      context.empty({count, most}, torch::kFloat),
      context.empty({count, most_crowds, kCorners}, torch::kFloat),
      context.empty({count, most_crowds}, torch::kLong)};
}

/// Copies the boxes of an image to row `slot` of a batch.
/// \param image    Size of the annotated image.
/// \param targets  Boxes, labels and, for objects, areas.
void BoxTargets::copy_rows(
    const Rows& rows,
    int64_t index,
    ImageSize image,
    const Tensors& targets,
    int64_t slot) const {
  const int64_t first = rows.first[index];
  const int64_t count = rows.first[index + 1] - first;
  const float* from = rows.boxes.const_data_ptr<float>() + kCorners * first;
  float* to =
      targets[0].mutable_data_ptr<float>() + kCorners * rows.most * slot;
  const auto width = static_cast<float>(image.width);
  const auto height = static_cast<float>(image.height);
  for (int64_t i = 0; i < count; ++i, from += kCorners, to += kCorners) {
    constexpr float kRounding = 1;  // annotation tools round
    const bool is_inside = from[0] >= -kRounding && from[1] >= -kRounding &&
                           from[2] <= width + kRounding &&
                           from[3] <= height + kRounding;
    if (!is_inside && !options_.clip) {
      throw_data_error(
          paths_[index],
          "has the box {}, {}, {}, {} (x1, y1, x2, y2), which extends beyond "
          "the image of {} x {} pixels (width x height). Correct it, or set "
          "annotations.clip.",
          from[0],
          from[1],
          from[2],
          from[3],
          image.width,
          image.height);
    }
    to[0] = std::clamp(from[0], 0.f, width);
    to[1] = std::clamp(from[1], 0.f, height);
    to[2] = std::clamp(from[2], 0.f, width);
    to[3] = std::clamp(from[3], 0.f, height);
  }
  std::fill_n(to, kCorners * (rows.most - count), 0.f);
  const auto copy = [&](const auto* values, auto* out, auto padding) {
    out += rows.most * slot;
    std::copy_n(values + first, count, out);
    std::fill_n(out + count, rows.most - count, padding);
  };
  copy(
      rows.labels.const_data_ptr<int64_t>(),
      targets[1].mutable_data_ptr<int64_t>(),
      int64_t{-1});
  if (targets.size() > 2) {
    copy(
        rows.areas.const_data_ptr<float>(),
        targets[2].mutable_data_ptr<float>(),
        0.f);
  }
}

bool BoxTargets::refers_to_upright() const {
  return std::ranges::count(pixels_, AnnotatedPixels::upright) > 0;
}

bool BoxTargets::has_boxes(int64_t index) const {
  const auto rows = [&](const Rows& all) {
    return all.first[index + 1] - all.first[index];
  };
  return rows(objects_) + rows(crowds_) > 0;
}

void BoxTargets::write(
    int64_t index,
    const SamplePlan& plan,
    const Tensors& targets,
    int64_t slot) const {
  const std::string& path = paths_[index];
  const ImageSize annotated = image_sizes_[index];
  // Without boxes, nothing depends on it.
  const bool stored =
      has_boxes(index) &&
      is_of_stored_pixels(path, plan, annotated, pixels_[index]);
  const bool is_turned = stored && plan.exif_orientation >= 5;
  const ImageSize image = is_turned ? turned(plan.original) : plan.original;
  if (has_boxes(index) || plan.exif_orientation == 1) {
    check_size(path, annotated, image);
  }
  const Tensors objects(targets.begin(), targets.begin() + 3);
  const Tensors crowds(targets.begin() + 3, targets.end());
  copy_rows(objects_, index, image, objects, slot);
  copy_rows(crowds_, index, image, crowds, slot);
  move_boxes(
      rows_of(targets, slot),
      {result_from_annotated(plan, stored)},
      plan.target(),
      options_);
}

PointTargets::PointTargets(
    std::vector<std::string> paths,
    const std::vector<std::vector<Point>>& images,
    const AnnotationOptions& options)
    : ImageTargets(std::ssize(images)),
      paths_(std::move(paths)),
      options_(options) {
  TERN_CHECK_VALUE(
      paths_.size() == images.size(),
      "[PointTargets] got {} paths and the points of {} images; expected the "
      "same number.",
      paths_.size(),
      images.size());
  check_annotation_options("PointTargets", options);
  const int64_t count = images.empty() ? 0 : std::ssize(images[0]);
  for (const auto& [one, other] : options.flip_pairs) {
    TERN_CHECK_VALUE(
        std::max(one, other) < count,
        "[PointTargets] flip_pairs has the pair {} and {}, but an image has {} "
        "points; expected indices from 0 to {}.",
        one,
        other,
        count,
        count - 1);
  }
  points_ = torch::zeros({size(), count, 2});
  visible_ = torch::zeros({size(), count}, torch::kBool);
  float* place = points_.mutable_data_ptr<float>();
  bool* is_visible = visible_.mutable_data_ptr<bool>();
  for (size_t i = 0; i < images.size(); ++i) {
    if (std::ssize(images[i]) != count || count == 0) {
      throw_data_error(
          paths_[i],
          "has {} points, but the first image has {}; expected the same "
          "number, and at least one. Add unknown points with visible = false.",
          images[i].size(),
          count);
    }
    for (const Point& point : images[i]) {
      if (point.visible) {
        if (!std::isfinite(point.x) || !std::isfinite(point.y)) {
          throw_data_error(
              paths_[i],
              "has the point {}, {}; expected finite numbers. Set visible to "
              "false for an unknown point.",
              point.x,
              point.y);
        }
        place[0] = static_cast<float>(point.x);
        place[1] = static_cast<float>(point.y);
      }
      *is_visible++ = point.visible;
      place += 2;
    }
  }
}

Tensors PointTargets::empty(
    int64_t count,
    ImageSize,
    const BatchContext& context) const {
  return {
      context.empty({count, points(), 2}, torch::kFloat),
      context.empty({count, points()}, torch::kBool)};
}

void PointTargets::write(
    int64_t index,
    const SamplePlan& plan,
    const Tensors& targets,
    int64_t slot) const {
  copy_row(points_, index, targets[0], slot);
  copy_row(visible_, index, targets[1], slot);
  // Without a known point, nothing depends on it.
  const bool stored =
      plan.exif_orientation != 1 && visible_[index].any().item<bool>() &&
      is_of_stored_pixels(paths_[index], plan, {}, options_.pixels);
  move_points(
      rows_of(targets, slot),
      {result_from_annotated(plan, stored)},
      plan.target(),
      options_);
}

torch::Tensor pack_boxes(const Tensors& targets) {
  TERN_CHECK_VALUE(
      targets.size() >= 2 && targets[0].dim() == 3 &&
          targets[0].size(2) == kCorners &&
          targets[1].sizes() == targets[0].sizes().slice(0, 2),
      "[pack_boxes] the targets are {}; expected boxes [N, K, 4] and labels "
      "[N, K].",
      shapes_of(targets));
  const torch::Tensor places = (targets[1] >= 0).nonzero();  // [sum K, 2]
  const torch::Tensor image = places.select(1, 0), row = places.select(1, 1);
  const torch::Tensor labels = targets[1].index({image, row});
  return torch::cat(
      {torch::stack({image, labels}, 1).to(torch::kFloat),
       targets[0].index({image, row}).to(torch::kFloat)},
      1);
}

}  // namespace tern
