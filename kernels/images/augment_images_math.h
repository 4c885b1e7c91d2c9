#pragma once

#include <cstdint>
#include <math.h>

#include "tern/kernels/kernel_args.h"

struct CUstream_st;

// Arguments that augment_images.cpp, which works with tensors, passes to the
// kernels, which work with pointers; and the code for one pixel, shared by CPU
// and CUDA. The sampling is the same as in warp_image, except for the rounding
// of coordinates. Includes nothing from LibTorch or CUDA.
namespace tern {

/// An ImageChange (augment_images.h) without the fields of varying size.
struct AugmentRecord {
  float matrix[9];
  float jitter_x, jitter_y;
  uint32_t jitter_key;
  Padding padding;
  bool mixes_colors;
  float scale, shift, saturation, hue;
  int32_t first_rectangle, rectangles;
};

struct AugmentArgs {
  const uint8_t* images;
  /// One record and 256 bytes of lookup table per image.
  const AugmentRecord* records;
  const uint8_t* tables;
  const PaintedRectangle* rectangles;
  void* out;
  /// True: writes the augmented bytes; otherwise `byte * scale[c] + offset[c]`
  /// as out_type.
  bool to_bytes;
  ElementType out_type;
  int32_t count, height, width, channels;
  float scale[3], offset[3];
};

void augment_images_cpu(const AugmentArgs& args);

/// \return a cudaError_t.
int augment_images_cuda(const AugmentArgs& args, CUstream_st* stream);

/// The two pixels of an axis around a point, and the weight of the second one
/// in 1/256. Positions outside the axis are black.
struct AxisTap {
  int32_t first, second;
  uint32_t weight;
};

TERN_ELEMENT_MATH AxisTap axis_tap(float at, int32_t size, Padding padding) {
  const float span = static_cast<float>(size);
  AxisTap tap;
  if (padding == Padding::zeros) {
    constexpr float kFar = 1e9f;
    at = at > -kFar ? (at < kFar ? at : kFar) : -kFar;
    const float floored = floorf(at);
    tap.first = static_cast<int32_t>(floored);
    tap.second = tap.first + 1;
    tap.weight = static_cast<uint32_t>((at - floored) * 256 + 0.5f);
    return tap;
  }
  if (padding == Padding::reflection) {
    // Reflected at -0.5 and size - 0.5, with a period of twice the size.
    const float shifted = at + 0.5f;
    const float turns = floorf(shifted / (2 * span));
    at = span - fabsf(shifted - turns * 2 * span - span) - 0.5f;
  }
  at = at > 0 ? (at < span - 1 ? at : span - 1) : 0.f;
  const int32_t last_first = size > 2 ? size - 2 : 0;
  tap.first = static_cast<int32_t>(at);
  tap.first = tap.first < last_first ? tap.first : last_first;
  tap.second = tap.first + 1 < size ? tap.first + 1 : tap.first;
  tap.weight =
      static_cast<uint32_t>((at - static_cast<float>(tap.first)) * 256 + 0.5f);
  return tap;
}

/// Returns channel `c` interpolated between the four pixels of two taps.
/// \param stride  Bytes from one row to the next.
TERN_ELEMENT_MATH uint8_t blend_taps(
    const uint8_t* image,
    int64_t stride,
    int32_t channels,
    int32_t height,
    int32_t width,
    const AxisTap& down,
    const AxisTap& across,
    int32_t c) {
  const auto value = [&](int32_t row, int32_t column) -> uint32_t {
    const bool is_inside =
        row >= 0 && column >= 0 && row < height && column < width;
    return is_inside ? image[row * stride + int64_t{column} * channels + c] : 0;
  };
  const auto blended = [&](int32_t row) {
    return (value(row, across.first) * (256 - across.weight) +
            value(row, across.second) * across.weight) >>
           1;
  };
  return static_cast<uint8_t>(
      (blended(down.first) * (256 - down.weight) +
       blended(down.second) * down.weight + 16384) >>
      15);
}

TERN_ELEMENT_MATH uint8_t unit_to_byte(float value) {
  const float kept = value > 0 ? (value < 1 ? value : 1.f) : 0.f;
  return static_cast<uint8_t>(kept * 255 + 0.5f);
}

/// Returns log(x / (1 - x)), with x kept 1e-7 away from 0 and 1.
TERN_ELEMENT_MATH float logit_of(uint8_t byte) {
  constexpr float kLargest = 16.118095f;
  if (byte == 0) return -kLargest;
  if (byte == 255) return kLargest;
  const float value = static_cast<float>(byte);
  return logf(value / (255 - value));
}

/// Rotates the hue of rgb in 0..1, as fastai's rgb2hsv and hsv2rgb do.
TERN_ELEMENT_MATH void turn_circle(float turn, float (&rgb)[3]) {
  const float high = fmaxf(rgb[0], fmaxf(rgb[1], rgb[2]));
  const float range = high - fminf(rgb[0], fminf(rgb[1], rgb[2]));
  if (range <= 0) return;
  float sixth = 0;
  if (high == rgb[0]) {
    sixth = (rgb[1] - rgb[2]) / range;
  } else if (high == rgb[1]) {
    sixth = 2 + (rgb[2] - rgb[0]) / range;
  } else {
    sixth = 4 + (rgb[0] - rgb[1]) / range;
  }
  sixth += turn * 6;
  for (int c = 0; c < 3; ++c) {
    float k = fmodf(static_cast<float>(5 - 2 * c) + sixth, 6.f);
    k = k < 0 ? k + 6 : k;
    rgb[c] = high - range * fmaxf(0.f, fminf(1.f, fminf(k, 4 - k)));
  }
}

TERN_ELEMENT_MATH void mix_pixel(const AugmentRecord& record, uint8_t* pixel) {
  float rgb[3];
  for (int c = 0; c < 3; ++c) rgb[c] = logit_of(pixel[c]);
  // ITU-R 601-2.
  const float gray = 0.2989f * rgb[0] + 0.5870f * rgb[1] + 0.1140f * rgb[2];
  for (int c = 0; c < 3; ++c) {
    const float mixed =
        rgb[c] * record.saturation + gray * (1 - record.saturation);
    rgb[c] = 1 / (1 + expf(-(record.scale * mixed + record.shift)));
  }
  if (record.hue != 0) turn_circle(record.hue, rgb);
  for (int c = 0; c < 3; ++c) pixel[c] = unit_to_byte(rgb[c]);
}

/// Computes the result's pixel in row y and column x.
template <int kChannels>
TERN_ELEMENT_MATH void augment_pixel(
    const AugmentArgs& args,
    const AugmentRecord& record,
    const uint8_t* image,
    const uint8_t* table,
    int32_t y,
    int32_t x,
    uint8_t (&pixel)[kChannels]) {
  const float* m = record.matrix;
  const float px = static_cast<float>(x) + 0.5f;
  const float py = static_cast<float>(y) + 0.5f;
  const float w = 1 / (m[6] * px + m[7] * py + m[8]);
  float at_x = (m[0] * px + m[1] * py + m[2]) * w;
  float at_y = (m[3] * px + m[4] * py + m[5]) * w;
  if (record.jitter_x != 0 || record.jitter_y != 0) {
    const uint32_t bits = hash_of(
        record.jitter_key,
        static_cast<uint32_t>(y),
        static_cast<uint32_t>(x));
    at_x += jitter_of(bits) * record.jitter_x;
    at_y += jitter_of(bits >> 16) * record.jitter_y;
  }
  const AxisTap across = axis_tap(at_x - 0.5f, args.width, record.padding);
  const AxisTap down = axis_tap(at_y - 0.5f, args.height, record.padding);
  for (int c = 0; c < kChannels; ++c) {
    pixel[c] = blend_taps(
        image,
        int64_t{args.width} * kChannels,
        kChannels,
        args.height,
        args.width,
        down,
        across,
        c);
  }
  if constexpr (kChannels == 3) {
    if (record.mixes_colors) mix_pixel(record, pixel);
  }
  for (int c = 0; c < kChannels; ++c) pixel[c] = table[pixel[c]];
  for (int32_t i = 0; i < record.rectangles; ++i) {
    const PaintedRectangle& r = args.rectangles[record.first_rectangle + i];
    if (y < r.top || y >= r.bottom || x < r.left || x >= r.right) continue;
    for (int c = 0; c < kChannels; ++c) {
      const auto place = static_cast<uint32_t>((x - r.left) * kChannels + c);
      const uint32_t bits =
          hash_of(r.noise_key, static_cast<uint32_t>(y), place);
      pixel[c] =
          r.noise ? unit_to_byte(0.5f + 0.5f * jitter_of(bits)) : r.value;
    }
  }
}

}  // namespace tern
