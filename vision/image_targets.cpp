#include "tern/vision/image_targets.h"

#include <algorithm>

#include <fmt/format.h>

#include "tern/data/formats/error.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"

namespace tern {

CategoryTargets::CategoryTargets(std::vector<int64_t> labels)
    : ImageTargets(static_cast<int64_t>(labels.size())),
      labels_(std::move(labels)) {}

torch::Tensor CategoryTargets::empty(
    int64_t count,
    ImageSize,
    const BatchContext& context) const {
  return context.empty({count}, torch::kLong);
}

void CategoryTargets::write(
    int64_t index,
    const SamplePlan&,
    const torch::Tensor& targets,
    int64_t slot) const {
  targets.mutable_data_ptr<int64_t>()[slot] = labels_[index];
}

NumberTargets::NumberTargets(std::vector<float> values, int64_t width)
    : ImageTargets(
          static_cast<int64_t>(values.size()) / std::max<int64_t>(width, 1)),
      values_(std::move(values)),
      width_(width) {
  TORCH_CHECK_VALUE(
      width >= 0 &&
          values_.size() % static_cast<size_t>(std::max<int64_t>(width, 1)) ==
              0,
      fmt::format(
          "[NumberTargets] there are {} values, {} for each image; expected a "
          "whole number of images.",
          values_.size(),
          width));
}

torch::Tensor NumberTargets::empty(
    int64_t count,
    ImageSize,
    const BatchContext& context) const {
  return width_ == 0 ? context.empty({count}, torch::kFloat)
                     : context.empty({count, width_}, torch::kFloat);
}

void NumberTargets::write(
    int64_t index,
    const SamplePlan&,
    const torch::Tensor& targets,
    int64_t slot) const {
  const int64_t width = std::max<int64_t>(width_, 1);
  std::copy_n(
      values_.begin() + index * width,
      width,
      targets.mutable_data_ptr<float>() + slot * width);
}

MaskTargets::MaskTargets(std::vector<std::string> paths, int64_t classes)
    : ImageTargets(static_cast<int64_t>(paths.size())),
      paths_(std::move(paths)),
      classes_(classes) {}

torch::Tensor MaskTargets::empty(
    int64_t count,
    ImageSize image,
    const BatchContext& context) const {
  return context.empty({count, image.height, image.width}, torch::kLong);
}

void MaskTargets::write(
    int64_t index,
    const SamplePlan& plan,
    const torch::Tensor& targets,
    int64_t slot) const {
  static thread_local ScratchBuffer file, picked;
  const std::string& path = paths_[index];
  const EncodedImage mask(
      read_image_file(path, file),
      path,
      {.channels = 1, .indices = true});
  const ImageSize from = mask.size(), image = plan.source();
  // A presized image is smaller than its mask, but for rounding of one shape.
  const int64_t difference =
      std::abs(from.height * image.width - from.width * image.height);
  if (difference > std::max(from.height, from.width)) {
    throw DataError(
        path,
        fmt::format(
            "is a mask of {} x {} pixels (height x width) for an image of {} x "
            "{}; expected the same shape. Was the image turned by its EXIF?",
            from.height,
            from.width,
            image.height,
            image.width));
  }
  Warp warp = plan.warp();
  warp.sampling = Sampling::nearest;
  const double across =
      static_cast<double>(from.width) / static_cast<double>(image.width);
  const double down =
      static_cast<double>(from.height) / static_cast<double>(image.height);
  if (from != image) {
    warp.matrix = Matrix3::scaling(across, down) * warp.matrix;
    warp.jitter_x *= static_cast<float>(across);
    warp.jitter_y *= static_cast<float>(down);
  }
  const ImageSize size = {targets.size(1), targets.size(2)};
  const int64_t count = size.height * size.width;
  uint8_t* numbers = picked.get(static_cast<size_t>(count));
  mask.sample(warp, size, numbers);
  const uint8_t highest = *std::max_element(numbers, numbers + count);
  if (classes_ > 0 && highest >= classes_) {
    throw DataError(
        path,
        fmt::format(
            "has the class number {}; expected 0 to {}. Add classes, or "
            "correct the mask.",
            highest,
            classes_ - 1));
  }
  std::copy_n(
      numbers,
      count,
      targets.mutable_data_ptr<int64_t>() + slot * count);
}

}  // namespace tern
