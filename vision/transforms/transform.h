#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tern/data/image_preprocessing.h"
#include "tern/data/support/random.h"
#include "tern/kernels/images/warp_image.h"
#include "tern/kernels/kernel_args.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// 8-bit pixels that a transform can modify: [height, width, channels],
/// contiguous.
struct MutablePixels {
  uint8_t* pixels = nullptr;
  ImageSize size;
  int64_t channels = 3;
};

/// Changes to the colors of an image, whose values are in 0..1.
///
/// Brightness, contrast and saturation are fastai's: they are affine in the
/// logits log(x / (1 - x)), so that all of them combine into one affine map.
struct Lighting {
  /// logit' = scale * mix(logit) + shift. mix multiplies each channel's
  /// distance from the pixel's gray value by `saturation`: 1 has no effect, 0
  /// makes the pixel gray.
  float scale = 1, shift = 0, saturation = 1;
  /// Rotates the hue by this fraction of the circle, after the changes above.
  float hue = 0;
  /// Tone curves from 0..1 to 0..1, applied in order after the changes above.
  std::vector<std::function<float(float)>> tones;

  bool is_identity() const {
    return is_table() && scale == 1 && shift == 0 && tones.empty();
  }
  /// True if each channel's result depends on that channel alone, so that a
  /// lookup table suffices.
  bool is_table() const { return saturation == 1 && hue == 0; }
  /// Returns the lookup table of 256 values, without saturation and hue.
  std::array<uint8_t, 256> table() const;
};

/// Changes the colors of an image, with one lookup table where possible.
/// Saturation and hue do not affect gray images.
void apply_lighting(const Lighting& lighting, const MutablePixels& image);

/// Fills a rectangle, clipped to the image.
void erase(const PaintedRectangle& rectangle, const MutablePixels& image);

/// Collects all changes to one sample. Transforms write to the plan before any
/// pixel is computed; then the image is sampled once.
///
/// Geometric transforms work on a canvas, which is initially the upright image.
/// They change which part of the image the canvas shows, or crop it. All of
/// them combine into one matrix.
class SamplePlan {
 public:
  /// Resets the plan but keeps its memory, so that a reused plan does not
  /// allocate.
  /// \param source  Size of the image.
  /// \param target  Size of an image in the batch.
  void begin(ImageSize source, ImageSize target, Padding padding);

  // ---- Geometry, in pixels of the canvas ----

  ImageSize source() const { return source_; }
  /// Size of the upright image in its file. Differs from the source if the
  /// source was presized.
  ImageSize original;
  /// The EXIF orientation that was applied to make the source upright; 1 if
  /// none.
  int exif_orientation = 1;
  ImageSize target() const { return target_; }
  /// The current size of the canvas.
  ImageSize size() const { return size_; }

  /// Changes the view: a point of the new canvas shows the point `matrix *
  /// point` of the current canvas.
  /// \param size  Size of the new canvas.
  void view(const Matrix3& matrix, ImageSize size) {
    matrix_ = matrix_ * matrix;
    size_ = size;
  }
  /// Changes the view about the center of the canvas and keeps the canvas size.
  void view_about_center(const Matrix3& matrix);
  /// Stretches the canvas to `size`.
  void resize(ImageSize size);
  /// Crops `size` from the canvas at (top, left); the area outside is padding.
  void crop(double top, double left, ImageSize size) {
    view(Matrix3::translation(left, top), size);
  }
  /// Sets the position of the final crop: 0 is top or left, 1 bottom or right.
  void set_crop_position(float row, float column) {
    crop_row_ = row;
    crop_column_ = column;
  }
  /// Moves every pixel at random, by up to this fraction of half the image.
  void jitter(float magnitude, uint32_t key) {
    jitter_ = magnitude;
    jitter_key_ = key;
  }

  /// Crops or pads the canvas to the target. Called once, after all transforms.
  void finish();

  /// Returns the map from the result to the source, including padding and
  /// jitter.
  Warp warp() const;
  /// Returns the map from pixels of the original to pixels of the result, which
  /// moves boxes and points. Excludes jitter.
  Matrix3 result_from_original() const;

  // ---- Changes to the pixels, applied in this order ----

  Lighting lighting;
  /// Other changes. They run on the thread that creates the sample.
  std::vector<std::function<void(const MutablePixels&)>> pixel_functions;
  std::vector<PaintedRectangle> erasures;
  /// Appends a rectangle, clipped to the target, to `erasures`.
  PaintedRectangle& erase(int64_t top, int64_t left, ImageSize size);

  /// Applies lighting, pixel functions and erasures in place.
  void finish_pixels(const MutablePixels& image) const;

 private:
  ImageSize source_, target_, size_;
  Matrix3 matrix_;
  Padding padding_ = Padding::reflection;
  float crop_row_ = 0.5f, crop_column_ = 0.5f;
  float jitter_ = 0;
  uint32_t jitter_key_ = 0;
};

/// A range to draw from, including both ends.
struct Range {
  float low = 0, high = 0;
};

/// A random change to an image. A transform writes to the plan of a sample; the
/// pixels are computed later, once for all transforms. A custom transform:
///
///   class Posterize final : public Transform {
///    public:
///     void plan(SamplePlan& plan, SampleRng& rng) const override {
///       if (rng.uniform() < 0.5f) {
///         plan.lighting.tones.push_back(
///             [](float x) { return std::floor(x * 4) / 4; });
///       }
///     }
///   };
///
/// Several threads call `plan` at the same time, so keep no mutable state. Draw
/// random numbers only from `rng`, which depends on the run's seed, the epoch
/// and the sample.
class Transform {
 public:
  virtual ~Transform() = default;

  virtual void plan(SamplePlan& plan, SampleRng& rng) const = 0;

  /// True if the transform itself resizes the canvas to the target, as a random
  /// resized crop does. The image is then not resized beforehand.
  virtual bool resizes() const { return false; }

  /// Describes the transform in `what` and returns true if it treats every
  /// image the same; otherwise returns false. For validation transforms.
  virtual bool describe(ImagePreprocessing& /*what*/) const { return false; }
};

using TransformPtr = std::shared_ptr<const Transform>;
using Transforms = std::vector<TransformPtr>;

/// Transforms for training and validation; see `get_transforms`.
struct TransformLists {
  Transforms train, valid;

  /// True if both contain the same transform objects.
  bool operator==(const TransformLists&) const = default;
};

/// How an image is resized to the size of the batch if no transform resizes it.
enum class ResizeMethod {
  /// Resizes to cover the target, then crops.
  crop,
  /// Resizes to fit into the target, then pads.
  pad,
  /// Stretches to the target, ignoring the aspect ratio.
  squish,
  /// Crops or pads without resizing.
  none,
};

/// Options of `make_plan`.
struct TransformOptions {
  ResizeMethod resize = ResizeMethod::crop;
  Padding padding = Padding::reflection;

  bool operator==(const TransformOptions&) const = default;
};

/// Returns the matrix from units, -1..1 in both directions, to pixels of an
/// image, and the inverse matrix.
Matrix3 pixels_of_units(ImageSize size);
Matrix3 units_of_pixels(ImageSize size);

/// Checks a list of transforms; `where` names the caller in the message.
/// \throws c10::ValueError if a transform is null.
void check_transforms(const char* where, const Transforms& transforms);
/// Checks the size of an image; `where` names the caller in the message.
/// \throws c10::ValueError unless both sides are at least 1 and the area is at
///         most `kMaxPixels`.
void check_size(const char* where, ImageSize size);

/// Returns the smallest size with the aspect ratio of `image` that covers
/// `target`, or, if `covers` is false, the largest size that fits into it.
ImageSize proportional(ImageSize image, ImageSize target, bool covers = true);

/// Plans one sample: resizes the image, applies all transforms in order, and
/// crops or pads to the target.
/// \param source  Size of the upright image.
void make_plan(
    const Transforms& transforms,
    const TransformOptions& options,
    ImageSize source,
    ImageSize target,
    SampleRng& rng,
    SamplePlan& plan);

}  // namespace tern
