#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/vision/image_size.h"
#include "tern/vision/transforms/sample_plan.h"

namespace tern {

/// What the images of a set are to be recognised as. Shared by threads.
class ImageTargets {
 public:
  virtual ~ImageTargets() = default;

  /// One for each image.
  virtual int64_t size() const = 0;
  /// Memory for the targets of `count` images of size `image`; undefined where
  /// there are none.
  virtual torch::Tensor
  empty(int64_t count, ImageSize image, const BatchContext& context) const = 0;
  /// Writes the target of sample `index` into place `slot`.
  /// \param plan  What becomes of its image; a mask goes the same way.
  virtual void write(
      int64_t index,
      const SamplePlan& plan,
      const torch::Tensor& targets,
      int64_t slot) const = 0;
};

/// One class each: [N] kLong.
class CategoryTargets final : public ImageTargets {
 public:
  explicit CategoryTargets(std::vector<int64_t> labels);
  int64_t size() const override;
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override;
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override;

  const std::vector<int64_t>& labels() const { return labels_; }

 private:
  std::vector<int64_t> labels_;
};

/// None: batches have no targets.
class NoTargets final : public ImageTargets {
 public:
  explicit NoTargets(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override {
    return {};
  }
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override {}

 private:
  int64_t size_;
};

/// Numbers, equally many for each image: [N, width] kFloat, [N] where `width`
/// is 0. Several classes each are such numbers too, 1 for those that apply.
class NumberTargets final : public ImageTargets {
 public:
  /// \param values  N * max(width, 1), image by image.
  /// \throws c10::ValueError if they do not divide.
  NumberTargets(std::vector<float> values, int64_t width);
  int64_t size() const override;
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override;
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override;

 private:
  std::vector<float> values_;
  int64_t width_;
};

/// A PNG with a class number for every pixel: [N, H, W] kLong. Turned, cut and
/// stretched as the image, each pixel picked from the mask and none mixed; what
/// lies outside of the image is as its padding says.
class MaskTargets final : public ImageTargets {
 public:
  /// \param classes  Their number; 0: not checked.
  MaskTargets(std::vector<std::string> paths, int64_t classes);
  int64_t size() const override;
  torch::Tensor empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError if the mask cannot be read, has another shape than the
  ///         image, or a number that is no class.
  void write(int64_t, const SamplePlan&, const torch::Tensor&, int64_t)
      const override;

 private:
  std::vector<std::string> paths_;
  int64_t classes_;
};

}  // namespace tern
