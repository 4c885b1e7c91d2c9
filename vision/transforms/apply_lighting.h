#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tern/vision/image_size.h"

namespace tern {

/// 8-bit pixels that a transform may change: [height, width, channels],
/// contiguous.
struct MutablePixels {
  uint8_t* pixels = nullptr;
  ImageSize size;
  int64_t channels = 3;
};

/// What shall be done to the colours of an image, brightness in 0..1.
///
/// Brightness, contrast and saturation are fastai's: affine in the logits
/// log(x / (1 - x)), so any number of them is one affine map.
struct Lighting {
  /// logit' = scale * mix(logit) + shift, where mix moves every channel
  /// towards the grey of the pixel: 1 is none, 0 is all grey.
  float scale = 1, shift = 0, saturation = 1;
  /// Turns the colour circle by this share of it; after the above.
  float hue = 0;
  /// Curves from 0..1 to 0..1, applied in order, after the above.
  std::vector<std::function<float(float)>> tones;

  bool is_identity() const {
    return is_table() && scale == 1 && shift == 0 && tones.empty();
  }
  /// Whether every channel depends on itself alone, so that a table does.
  bool is_table() const { return saturation == 1 && hue == 0; }
  /// The table of 256 values; saturation and hue are not in it.
  std::array<uint8_t, 256> table() const;

  void clear();
};

/// A rectangle of the result that is painted over.
struct Erasure {
  ImageSize at, size;  // `at`: row and column of its upper left corner
  /// Random bytes instead of `value`.
  bool noise = false;
  uint8_t value = 0;
  uint32_t noise_key = 0;
};

/// Changes the colours of an image, through one table where every channel
/// depends on itself alone. Saturation and hue leave a grey image as it is.
void apply_lighting(const Lighting& lighting, const MutablePixels& image);

/// Paints a rectangle over; what lies outside of the image is cut.
void erase(const Erasure& erasure, const MutablePixels& image);

}  // namespace tern
