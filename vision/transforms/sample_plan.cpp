#include "tern/vision/transforms/sample_plan.h"

#include <algorithm>
#include <cmath>

namespace tern {

void SamplePlan::begin(ImageSize source, ImageSize target, Padding padding) {
  source_ = size_ = source;
  target_ = target;
  matrix_ = {};
  padding_ = padding;
  crop_row_ = crop_column_ = 0.5f;
  jitter_ = 0;
  lighting.clear();
  pixel_functions.clear();
  erasures.clear();
}

void SamplePlan::view(const Matrix3& matrix, ImageSize size) {
  matrix_ = matrix_ * matrix;
  size_ = size;
}

void SamplePlan::view_about_centre(const Matrix3& matrix) {
  const double x = static_cast<double>(size_.width) / 2;
  const double y = static_cast<double>(size_.height) / 2;
  view(
      Matrix3::translation(x, y) * matrix * Matrix3::translation(-x, -y),
      size_);
}

void SamplePlan::resize(ImageSize size) {
  view(
      Matrix3::scaling(
          static_cast<double>(size_.width) / static_cast<double>(size.width),
          static_cast<double>(size_.height) / static_cast<double>(size.height)),
      size);
}

void SamplePlan::crop(double top, double left, ImageSize size) {
  view(Matrix3::translation(left, top), size);
}

void SamplePlan::jitter(float magnitude, uint32_t key) {
  jitter_ = magnitude;
  jitter_key_ = key;
}

void SamplePlan::finish() {
  if (size_ == target_) {
    return;
  }
  // Whole pixels: what is only cut stays as it is. Padding is equal on both
  // sides.
  const auto offset = [](int64_t size, int64_t target, float position) {
    const int64_t room = size - target;
    return room < 0 ? std::floor(static_cast<double>(room) / 2)
                    : std::round(static_cast<double>(room) * position);
  };
  crop(
      offset(size_.height, target_.height, crop_row_),
      offset(size_.width, target_.width, crop_column_),
      target_);
}

Warp SamplePlan::warp() const {
  return {
      .matrix = matrix_,
      .padding = padding_,
      .jitter_x = jitter_ * static_cast<float>(source_.width) / 2,
      .jitter_y = jitter_ * static_cast<float>(source_.height) / 2,
      .jitter_key = jitter_key_};
}

void SamplePlan::finish_pixels(const MutablePixels& image) const {
  if (!lighting.is_identity()) {
    apply_lighting(lighting, image);
  }
  for (const auto& change : pixel_functions) {
    change(image);
  }
  for (const Erasure& erasure : erasures) {
    erase(erasure, image);
  }
}

}  // namespace tern
