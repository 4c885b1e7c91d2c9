#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/vision/decode/image_size.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// The targets of an image dataset. Thread-safe.
class ImageTargets {
 public:
  /// \param size  Number of images.
  explicit ImageTargets(int64_t size) : size_(size) {}
  virtual ~ImageTargets() = default;

  int64_t size() const { return size_; }
  /// Allocates the targets of `count` images of size `image`: one or several
  /// tensors [count, ...].
  virtual Tensors
  empty(int64_t count, ImageSize image, const BatchContext& context) const = 0;
  /// Writes the target of sample `index` to position `slot` of a batch.
  /// \param plan     The transforms of its image. Masks, boxes and points are
  ///                 transformed in the same way.
  /// \param targets  The tensors that `empty` returned.
  virtual void write(
      int64_t index,
      const SamplePlan& plan,
      const Tensors& targets,
      int64_t slot) const = 0;

 private:
  int64_t size_;
};

/// Targets that are rows of a tensor: classes [N] kLong, regression targets [N]
/// or [N, k] kFloat, or multi-label classes as 0 and 1.
class TensorTargets final : public ImageTargets {
 public:
  explicit TensorTargets(const torch::Tensor& values);
  Tensors empty(int64_t, ImageSize, const BatchContext&) const override;
  void write(int64_t, const SamplePlan&, const Tensors&, int64_t)
      const override;

  const torch::Tensor& values() const { return values_; }

 private:
  torch::Tensor values_;
};

/// Targets that are masks: one PNG of class indices per image, [N, H, W] kLong.
/// A mask is transformed and padded like its image, with nearest-neighbor
/// sampling.
class MaskTargets final : public ImageTargets {
 public:
  /// \param classes  Number of classes; 0: not checked.
  MaskTargets(std::vector<std::string> paths, int64_t classes)
      : ImageTargets(std::ssize(paths)),
        paths_(std::move(paths)),
        classes_(classes) {}
  Tensors empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError if the mask cannot be read, differs from the image in
  ///         aspect ratio, or contains an invalid index.
  void write(int64_t, const SamplePlan&, const Tensors&, int64_t)
      const override;

 private:
  std::vector<std::string> paths_;
  int64_t classes_;
};

}  // namespace tern
