#include "tern/vision/datasets/image_targets.h"

#include <algorithm>
#include <cstring>

#include "tern/data/support/error_text.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"

namespace tern {

TensorTargets::TensorTargets(const torch::Tensor& values)
    : ImageTargets(values.size(0)), values_(values.contiguous()) {}

Tensors TensorTargets::empty(
    int64_t count,
    ImageSize,
    const BatchContext& context) const {
  std::vector<int64_t> shape = values_.sizes().vec();
  shape[0] = count;
  return {context.empty(shape, values_.scalar_type())};
}

void TensorTargets::write(
    int64_t index,
    const SamplePlan&,
    const Tensors& targets,
    int64_t slot) const {
  const size_t bytes = values_.nbytes() / static_cast<size_t>(size());
  std::memcpy(
      static_cast<char*>(targets[0].mutable_data_ptr()) + bytes * slot,
      static_cast<const char*>(values_.const_data_ptr()) + bytes * index,
      bytes);
}

Tensors MaskTargets::empty(
    int64_t count,
    ImageSize image,
    const BatchContext& context) const {
  return {context.empty({count, image.height, image.width}, torch::kLong)};
}

void MaskTargets::write(
    int64_t index,
    const SamplePlan& plan,
    const Tensors& targets,
    int64_t slot) const {
  static thread_local ScratchBuffer file, picked;
  const std::string& path = paths_[index];
  const auto bytes = read_image_file(path, file);
  const EncodedImage mask(bytes, path, {.channels = 1, .indices = true});
  const ImageSize from = mask.size(), image = plan.source();
  // Compares only the shape, because a presized image is smaller than its mask.
  if (!has_shape_of(from, image)) {
    throw_data_error(
        path,
        "is a mask of {} x {} pixels (height x width) for an image of {} x {}; "
        "expected the same size. Check whether the image was rotated by its "
        "EXIF orientation.",
        from.height,
        from.width,
        image.height,
        image.width);
  }
  if (may_be_turned(
          plan.exif_orientation,
          image,
          mask.header().orientation,
          from)) {
    throw_data_error(
        path,
        "is the mask of an image with the EXIF orientation {}, and it is "
        "unknown whether it was drawn on the stored or on the upright image; "
        "expected images of orientation 1. Set decode.exif_orientation to "
        "false if the mask belongs to the stored image, or save the image "
        "upright.",
        plan.exif_orientation);
  }
  Warp warp = plan.warp();
  warp.sampling = Sampling::nearest;
  if (from != image) {
    const auto [down, across] = pixels_per_pixel(from, image);
    warp.matrix = Matrix3::scaling(across, down) * warp.matrix;
    warp.jitter_x *= static_cast<float>(across);
    warp.jitter_y *= static_cast<float>(down);
  }
  const ImageSize size = {targets[0].size(1), targets[0].size(2)};
  const int64_t count = size.height * size.width;
  uint8_t* numbers = picked.get(count);
  mask.sample(warp, size, numbers);
  const uint8_t highest = *std::max_element(numbers, numbers + count);
  if (classes_ > 0 && highest >= classes_) {
    throw_data_error(
        path,
        "has the class index {}; expected 0 to {}. Add classes, or correct the "
        "mask.",
        highest,
        classes_ - 1);
  }
  auto* out = targets[0].mutable_data_ptr<int64_t>();
  std::copy_n(numbers, count, out + slot * count);
}

}  // namespace tern
