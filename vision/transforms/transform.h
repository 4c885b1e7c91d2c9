#pragma once

#include <memory>
#include <vector>

#include "tern/data/image_preprocessing.h"
#include "tern/data/random.h"
#include "tern/vision/transforms/sample_plan.h"

namespace tern {

/// A range to draw from, both ends included.
struct Range {
  float low = 0, high = 0;
};

/// Something that changes an image at random. It writes down what shall happen
/// to a sample; the pixels are made later, once for all transforms. One of your
/// own:
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
/// state, and draw from `rng` alone, which depends on nothing but the run's
/// seed, the epoch and the sample.
class Transform {
 public:
  virtual ~Transform() = default;

  virtual void plan(SamplePlan& plan, SampleRng& rng) const = 0;

  /// Whether it brings the canvas to the target itself, as a random resized
  /// crop does; the image is then not resized before.
  virtual bool resizes() const { return false; }

  /// Whether it does the same to every image, so that `what` can say it; it
  /// then does. Of the transforms for images to check with.
  virtual bool describe(ImagePreprocessing& /*what*/) const { return false; }
};

using TransformPtr = std::shared_ptr<const Transform>;
using Transforms = std::vector<TransformPtr>;

/// Those for images to learn from and to check with; see `get_transforms`.
struct TransformLists {
  Transforms train, valid;
};

/// How an image gets the size of a batch when no transform does it.
enum class ResizeMethod {
  /// Covers the target and is cut.
  crop,
  /// Fits into the target and is padded.
  pad,
  /// Is stretched.
  squish,
  /// Is cut or padded as it is.
  none,
};

/// What `make_plan` needs to know of a data set.
struct TransformOptions {
  ResizeMethod resize = ResizeMethod::crop;
  Padding padding = Padding::reflection;
};

/// Plans one sample: resizes, lets every transform in order have its say, and
/// cuts to the target.
/// \param source  Height and width of the image, upright.
void make_plan(
    const Transforms& transforms,
    const TransformOptions& options,
    ImageSize source,
    ImageSize target,
    SampleRng& rng,
    SamplePlan& plan);

}  // namespace tern
