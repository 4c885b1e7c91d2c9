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

/// 8-bit pixels that a transform may modify: [height, width, channels],
/// contiguous.
struct MutablePixels {
  uint8_t* pixels = nullptr;
  ImageSize size;
  int64_t channels = 3;
};

/// Changes to the colors of an image, brightness in 0..1.
///
/// Brightness, contrast and saturation are fastai's: affine in the logits
/// log(x / (1 - x)), so any number of them is one affine map.
struct Lighting {
  /// logit' = scale * mix(logit) + shift, where mix moves every channel
  /// towards the gray of the pixel: 1 is none, 0 is all gray.
  float scale = 1, shift = 0, saturation = 1;
  /// Rotates the hue by this fraction of the circle; after the above.
  float hue = 0;
  /// Tone curves from 0..1 to 0..1, applied in order, after the above.
  std::vector<std::function<float(float)>> tones;

  bool is_identity() const {
    return is_table() && scale == 1 && shift == 0 && tones.empty();
  }
  /// True if every channel depends only on itself, so that a table suffices.
  bool is_table() const { return saturation == 1 && hue == 0; }
  /// Returns the table of 256 values, without saturation and hue.
  std::array<uint8_t, 256> table() const;
};

/// Changes the colors of an image, by one table where possible. Saturation and
/// hue do not affect gray images.
void apply_lighting(const Lighting& lighting, const MutablePixels& image);

/// Fills a rectangle, clipped to the image.
void erase(const PaintedRectangle& rectangle, const MutablePixels& image);

/// All changes to one sample, determined before any pixel is computed:
/// transforms write the plan, then the image is sampled once.
///
/// Geometry works on a canvas, initially the upright image. Transforms change
/// what the canvas shows or crop it; together they are one matrix.
class SamplePlan {
 public:
  /// Resets the plan. Keeps its memory, so that a reused plan allocates
  /// nothing.
  /// \param source  Size of the image.
  /// \param target  Size in the batch.
  void begin(ImageSize source, ImageSize target, Padding padding);

  // ---- Geometry, in pixels of the canvas ----

  ImageSize source() const { return source_; }
  /// Size of the upright image in its file; that of the source, unless it was
  /// presized.
  ImageSize original;
  /// The EXIF orientation by which the source was turned upright; 1: it was not.
  int exif_orientation = 1;
  ImageSize target() const { return target_; }
  /// The current size of the canvas.
  ImageSize size() const { return size_; }

  /// Maps each point of the new canvas to `matrix * point` of the current one.
  /// \param size  Of the new canvas.
  void view(const Matrix3& matrix, ImageSize size) {
    matrix_ = matrix_ * matrix;
    size_ = size;
  }
  /// The same about the center of the canvas, whose size is kept.
  void view_about_centre(const Matrix3& matrix);
  /// Stretches the canvas to `size`.
  void resize(ImageSize size);
  /// Crops `size` from the canvas at (top, left), with padding outside of it.
  void crop(double top, double left, ImageSize size) {
    view(Matrix3::translation(left, top), size);
  }
  /// Sets the position of the crop to the target: 0 is top or left, 1 bottom or
  /// right.
  void set_crop_position(float row, float column) {
    crop_row_ = row;
    crop_column_ = column;
  }
  /// Moves every pixel at random by up to this fraction of half the image.
  void jitter(float magnitude, uint32_t key) {
    jitter_ = magnitude;
    jitter_key_ = key;
  }

  /// Crops or pads the canvas to the target. Called once, after all transforms.
  void finish();

  /// Returns the map from the result to the source, with padding and jitter.
  Warp warp() const;
  /// Returns the map from a pixel of the original to one of the result, by which
  /// boxes and points move. Knows no jitter.
  Matrix3 result_from_original() const;

  // ---- Changes to the pixels, in this order ----

  Lighting lighting;
  /// Other changes; run on the thread that creates the sample.
  std::vector<std::function<void(const MutablePixels&)>> pixel_functions;
  std::vector<PaintedRectangle> erasures;
  /// Adds the part of a rectangle that lies in the target to `erasures`.
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

/// A range to draw from, both ends included.
struct Range {
  float low = 0, high = 0;
};

/// A random change to an image. It writes to the plan of a sample; the pixels
/// are computed later, once for all transforms. A transform of your own:
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
/// `plan` is called from several threads at the same time: keep no mutable
/// state, and draw random numbers from `rng` only, which depends on the run's
/// seed, the epoch and the sample.
class Transform {
 public:
  virtual ~Transform() = default;

  virtual void plan(SamplePlan& plan, SampleRng& rng) const = 0;

  /// True if it resizes the canvas to the target itself, as a random resized
  /// crop does; the image is then not resized before.
  virtual bool resizes() const { return false; }

  /// Describes the transform in `what` if it treats every image the same;
  /// returns false otherwise. For validation transforms.
  virtual bool describe(ImagePreprocessing& /*what*/) const { return false; }
};

using TransformPtr = std::shared_ptr<const Transform>;
using Transforms = std::vector<TransformPtr>;

/// Transforms for training and validation; see `get_transforms`.
struct TransformLists {
  Transforms train, valid;

  /// Whether both have the same objects.
  bool operator==(const TransformLists&) const = default;
};

/// How an image is resized to the size of a batch if no transform does it.
enum class ResizeMethod {
  /// Covers the target and is cropped.
  crop,
  /// Fits into the target and is padded.
  pad,
  /// Stretched to the target.
  squish,
  /// Cropped or padded without resizing.
  none,
};

/// Options of `make_plan`.
struct TransformOptions {
  ResizeMethod resize = ResizeMethod::crop;
  Padding padding = Padding::reflection;

  bool operator==(const TransformOptions&) const = default;
};

/// Returns the matrix from -1..1 in both directions to the pixels of an image,
/// and its inverse.
Matrix3 pixels_of_units(ImageSize size);
Matrix3 units_of_pixels(ImageSize size);

/// \throws c10::ValueError if a transform is null. \param where  The caller.
void check_transforms(const char* where, const Transforms& transforms);
/// \throws c10::ValueError unless both sides are at least 1 and there are at
///         most `kMaxPixels`.
void check_size(const char* where, ImageSize size);

/// Returns the size, in the proportions of `image`, that just covers `target`,
/// or the one that fits into it.
ImageSize proportional(ImageSize image, ImageSize target, bool covers = true);

/// Plans one sample: resizes it, applies all transforms in order, and crops to
/// the target.
/// \param source  Size of the upright image.
void make_plan(
    const Transforms& transforms,
    const TransformOptions& options,
    ImageSize source,
    ImageSize target,
    SampleRng& rng,
    SamplePlan& plan);

}  // namespace tern
