#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tern/kernels/warp_image.h"
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

/// Everything that shall happen to one sample, decided before any pixel is
/// made: transforms write it, and then the image is sampled once.
///
/// Geometry works on a canvas: at first the image as it is, upright. A
/// transform changes what the canvas shows or cuts it; all of them together are
/// one matrix.
class SamplePlan {
 public:
  /// Starts anew. Keeps memory, so that a plan that is used again allocates
  /// nothing.
  /// \param source  Height and width of the image.
  /// \param target  Those that the batch wants.
  void begin(ImageSize source, ImageSize target, Padding padding);

  // ---- Geometry, in pixels of the canvas ----

  ImageSize source() const { return source_; }
  ImageSize target() const { return target_; }
  /// The canvas as it is by now.
  ImageSize size() const { return size_; }

  /// Shows what lies at `matrix * point` of the present canvas at each point of
  /// the new one. \param size  Of the new canvas.
  void view(const Matrix3& matrix, ImageSize size);
  /// The same about the middle of the canvas, whose size stays.
  void view_about_centre(const Matrix3& matrix);
  /// Stretches the canvas to `size`.
  void resize(ImageSize size);
  /// Cuts `size` from the canvas, from (top, left) on; what lies outside of it
  /// is padding.
  void crop(double top, double left, ImageSize size);
  /// Where a crop to the target lies: 0 is top or left, 1 bottom or right.
  void set_crop_position(float row, float column) {
    crop_row_ = row;
    crop_column_ = column;
  }
  /// Moves every pixel at random by up to this share of half the image.
  void jitter(float magnitude, uint32_t key);

  /// Cuts or pads the canvas to the target. Called once, after all transforms.
  void finish();

  /// From the result to the source, with padding and jitter.
  Warp warp() const;

  // ---- What happens to the pixels, in this order ----

  Lighting lighting;
  /// Anything else; they run on the thread that makes the sample.
  std::vector<std::function<void(const MutablePixels&)>> pixel_functions;
  std::vector<Erasure> erasures;

  /// Lighting, pixel functions and erasures, in place.
  void finish_pixels(const MutablePixels& image) const;

 private:
  ImageSize source_, target_, size_;
  Matrix3 matrix_;
  Padding padding_ = Padding::reflection;
  float crop_row_ = 0.5f, crop_column_ = 0.5f;
  float jitter_ = 0;
  uint32_t jitter_key_ = 0;
};

}  // namespace tern
