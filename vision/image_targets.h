#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/vision/image_size.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// The targets of an image data set. Thread-safe.
class ImageTargets {
 public:
  /// \param size  Number of images.
  explicit ImageTargets(int64_t size) : size_(size) {}
  virtual ~ImageTargets() = default;

  int64_t size() const { return size_; }
  /// Allocates the targets of `count` images of size `image`; undefined if
  /// there are no targets.
  virtual torch::Tensor
  empty(int64_t count, ImageSize image, const BatchContext& context) const = 0;
  /// Writes the target of sample `index` to position `slot` of a batch.
  /// \param plan  How its image is transformed; a mask is transformed the same
  ///              way.
  virtual void write(
      int64_t index,
      const SamplePlan& plan,
      const torch::Tensor& targets,
      int64_t slot) const = 0;

 private:
  int64_t size_;
};

/// One class per image: [N] kLong.
class CategoryTargets final : public ImageTargets {
 public:
  explicit CategoryTargets(std::vector<int64_t> labels);
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override;
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override;

  const std::vector<int64_t>& labels() const { return labels_; }

 private:
  std::vector<int64_t> labels_;
};

/// No targets.
class NoTargets final : public ImageTargets {
 public:
  using ImageTargets::ImageTargets;
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override {
    return {};
  }
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override {}
};

/// `width` numbers per image: [N, width] kFloat, or [N] if `width` is 0. Also
/// multi-label classes, as 0 and 1.
class NumberTargets final : public ImageTargets {
 public:
  /// \param values  N * max(width, 1), image by image.
  /// \throws c10::ValueError if the number of values does not fit.
  NumberTargets(std::vector<float> values, int64_t width);
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override;
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override;

 private:
  std::vector<float> values_;
  int64_t width_;
};

/// A PNG of class indices per image: [N, H, W] kLong. Transformed like the
/// image with nearest-neighbour sampling; padded like the image.
class MaskTargets final : public ImageTargets {
 public:
  /// \param classes  Number of classes; 0: not checked.
  MaskTargets(std::vector<std::string> paths, int64_t classes);
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError if the mask cannot be read, has another shape than the
  ///         image, or contains an invalid index.
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override;

 private:
  std::vector<std::string> paths_;
  int64_t classes_;
};

}  // namespace tern
