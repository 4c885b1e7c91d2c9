#include "tern/vision/transforms/transform.h"

#include <algorithm>
#include <cmath>

#include <c10/util/Exception.h>

#include "tern/data/formats/samples/image_header.h"
#include "tern/kernels/check.h"
#include "tern/kernels/images/augment_images_math.h"
#include "tern/kernels/images/warp_image.h"

namespace tern {

namespace {

/// log(x / (1 - x)) of each byte. As in fastai, x is clamped away from 0 and 1.
const std::array<float, 256>& logits() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (size_t i = 0; i < all.size(); ++i) {
      const double x = std::clamp(static_cast<double>(i) / 255, 1e-7, 1 - 1e-7);
      all[i] = static_cast<float>(std::log(x / (1 - x)));
    }
    return all;
  }();
  return values;
}

float sigmoid(float logit) {
  return 1 / (1 + std::exp(-logit));
}

/// Applies all tone curves to x in 0..1.
float toned(const Lighting& lighting, float x) {
  for (const auto& tone : lighting.tones) x = tone(x);
  return x;
}

void mix_colors(const Lighting& lighting, const MutablePixels& image) {
  const std::array<float, 256>& logit = logits();
  const bool is_logit =
      lighting.saturation != 1 || lighting.scale != 1 || lighting.shift != 0;
  const float keep = lighting.saturation;
  const int64_t count = image.size.height * image.size.width;
  uint8_t* pixel = image.pixels;
  for (int64_t i = 0; i < count; ++i, pixel += 3) {
    float rgb[3];
    if (is_logit) {
      for (int c = 0; c < 3; ++c) rgb[c] = logit[pixel[c]];
      // ITU-R 601-2 weights, as in fastai's grayscale.
      const float gray = 0.2989f * rgb[0] + 0.5870f * rgb[1] + 0.1140f * rgb[2];
      for (float& value : rgb) {
        value = sigmoid(
            lighting.scale * (value * keep + gray * (1 - keep)) +
            lighting.shift);
      }
    } else {
      for (int c = 0; c < 3; ++c) rgb[c] = static_cast<float>(pixel[c]) / 255;
    }
    if (lighting.hue != 0) turn_circle(lighting.hue, rgb);
    for (int c = 0; c < 3; ++c) {
      pixel[c] = unit_to_byte(toned(lighting, rgb[c]));
    }
  }
}

}  // namespace

std::array<uint8_t, 256> Lighting::table() const {
  std::array<uint8_t, 256> bytes{};
  const bool is_logit = scale != 1 || shift != 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const float x = is_logit ? sigmoid(scale * logits()[i] + shift)
                             : static_cast<float>(i) / 255;
    bytes[i] = unit_to_byte(toned(*this, x));
  }
  return bytes;
}

void apply_lighting(const Lighting& lighting, const MutablePixels& image) {
  if (image.channels == 3 && !lighting.is_table()) {
    mix_colors(lighting, image);
    return;
  }
  const std::array<uint8_t, 256> table = lighting.table();
  const int64_t count = image.size.height * image.size.width * image.channels;
  for (int64_t i = 0; i < count; ++i) image.pixels[i] = table[image.pixels[i]];
}

void erase(const PaintedRectangle& rectangle, const MutablePixels& image) {
  const PaintedRectangle& r = rectangle;
  const int64_t right = std::min<int64_t>(r.right, image.size.width);
  const int64_t bottom = std::min<int64_t>(r.bottom, image.size.height);
  const int64_t bytes = (right - r.left) * image.channels;
  for (int64_t y = r.top; y < bottom; ++y) {
    uint8_t* row =
        image.pixels + (y * image.size.width + r.left) * image.channels;
    for (int64_t i = 0; i < bytes; ++i) {
      row[i] =
          r.noise
              ? unit_to_byte(0.5f + 0.5f * warp_jitter(r.noise_key, y, i).first)
              : r.value;
    }
  }
}

PaintedRectangle& SamplePlan::erase(int64_t top, int64_t left, ImageSize size) {
  const auto within = [](int64_t place, int64_t limit) {
    return static_cast<int32_t>(std::clamp<int64_t>(place, 0, limit));
  };
  erasures.push_back(
      {.top = within(top, target_.height),
       .left = within(left, target_.width),
       .bottom = within(top + size.height, target_.height),
       .right = within(left + size.width, target_.width)});
  return erasures.back();
}

void SamplePlan::begin(ImageSize source, ImageSize target, Padding padding) {
  source_ = size_ = original = source;
  exif_orientation = 1;
  target_ = target;
  matrix_ = {};
  padding_ = padding;
  crop_row_ = crop_column_ = 0.5f;
  jitter_ = 0;
  lighting = {};
  pixel_functions.clear();
  erasures.clear();
}

void SamplePlan::view_about_center(const Matrix3& matrix) {
  const double x = static_cast<double>(size_.width) / 2;
  const double y = static_cast<double>(size_.height) / 2;
  view(
      Matrix3::translation(x, y) * matrix * Matrix3::translation(-x, -y),
      size_);
}

void SamplePlan::resize(ImageSize size) {
  const auto [down, across] = pixels_per_pixel(size_, size);
  view(Matrix3::scaling(across, down), size);
}

void SamplePlan::finish() {
  if (size_ == target_) return;
  // Uses whole pixels, so that a plain crop does not interpolate. Padding is
  // equal on both sides.
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

Matrix3 SamplePlan::result_from_original() const {
  const auto [down, across] = pixels_per_pixel(source_, original);
  return matrix_.inverse() * Matrix3::scaling(across, down);
}

void SamplePlan::finish_pixels(const MutablePixels& image) const {
  if (!lighting.is_identity()) apply_lighting(lighting, image);
  for (const auto& change : pixel_functions) change(image);
  for (const PaintedRectangle& rectangle : erasures) {
    tern::erase(rectangle, image);
  }
}

Matrix3 pixels_of_units(ImageSize size) {
  const double x = static_cast<double>(size.width) / 2;
  const double y = static_cast<double>(size.height) / 2;
  return {{x, 0, x, 0, y, y, 0, 0, 1}};
}

Matrix3 units_of_pixels(ImageSize size) {
  const double x = 2 / static_cast<double>(size.width);
  const double y = 2 / static_cast<double>(size.height);
  return {{x, 0, -1, 0, y, -1, 0, 0, 1}};
}

void check_transforms(const char* where, const Transforms& transforms) {
  for (const TransformPtr& transform : transforms) {
    TERN_CHECK_VALUE(transform, "[{}] a transform is null; remove it.", where);
  }
}

void check_size(const char* where, ImageSize size) {
  TERN_CHECK_VALUE(
      size.height > 0 && size.width > 0 &&
          size.height <= kMaxPixels / size.width,
      "[{}] size is {} x {}; expected a height and a width of at least 1 "
      "and at most {} pixels in all.",
      where,
      size.height,
      size.width,
      kMaxPixels);
}

ImageSize proportional(ImageSize image, ImageSize target, bool covers) {
  const auto [down, across] = pixels_per_pixel(target, image);
  const double scale = covers ? std::max(across, down) : std::min(across, down);
  const auto scaled = [&](int64_t size) {
    return std::max<int64_t>(
        1,
        std::llround(static_cast<double>(size) * scale));
  };
  return {scaled(image.height), scaled(image.width)};
}

void make_plan(
    const Transforms& transforms,
    const TransformOptions& options,
    ImageSize source,
    ImageSize target,
    SampleRng& rng,
    SamplePlan& plan) {
  plan.begin(source, target, options.padding);
  const bool is_resized = std::ranges::any_of(
      transforms,
      [](const TransformPtr& transform) { return transform->resizes(); });
  const ResizeMethod resize = options.resize;
  if (!is_resized && source != target && resize != ResizeMethod::none) {
    const bool covers = resize == ResizeMethod::crop;
    plan.resize(
        resize == ResizeMethod::squish ? target
                                       : proportional(source, target, covers));
  }
  for (const TransformPtr& transform : transforms) transform->plan(plan, rng);
  plan.finish();
}

}  // namespace tern
