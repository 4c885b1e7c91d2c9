#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tern/data/dataset.h"
#include "tern/vision/bad_images.h"
#include "tern/vision/decode.h"
#include "tern/vision/image_file.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_targets.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

class ImagePack;

struct ImageDatasetOptions {
  /// Size that every image gets: 128 for a square, or ImageSize{height, width}.
  /// Unset: all images must have the size of the first, and another one is an
  /// error.
  std::optional<ImageSize> size = {};
  /// How files are decoded; `decode.channels` is the C of a batch.
  DecodeOptions decode = {};
  /// `train` for batches that are for training, `valid` for others.
  TransformLists transforms = {};
  /// How images get their size.
  TransformOptions sizing = {};
  BadImagePolicy bad_images = {};
};

/// Image files with a target each.
///
/// A batch has inputs[0], [N, H, W, C] kByte, RGB, and targets[0], for classes
/// [N] kLong. Every image is decoded, transformed and sampled straight into its
/// place in the batch.
class ImageDataset final : public Dataset {
 public:
  /// Reads the first image's header if no size is given.
  /// \param labels  The class of each path.
  /// \throws c10::ValueError if the numbers of paths and labels differ or an
  ///         option is out of its range; DataError for a bad first image.
  ImageDataset(
      std::vector<std::string> paths,
      std::vector<int64_t> labels,
      const ImageDatasetOptions& options = {});

  /// The same with targets of any kind.
  /// \param source  Gives the images; `paths` are then only their names. Null:
  ///                the files at `paths`.
  static std::shared_ptr<ImageDataset> with_targets(
      std::vector<std::string> paths,
      std::shared_ptr<const ImageTargets> targets,
      const ImageDatasetOptions& options = {},
      std::shared_ptr<const ImageSource> source = nullptr);

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }

  /// \throws DataError naming the file that is missing, broken or, without
  ///         `options.size`, of another size than the first.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;

  /// The path of the image.
  std::string describe(int64_t index) const override;

  const std::vector<std::string>& paths() const { return paths_; }
  /// Null: the images are the files at `paths()`.
  const ImageSource* source() const { return source_.get(); }
  /// The image at `index` as it is stored; in `buffer` if it had to be read.
  std::span<const uint8_t> encoded(int64_t index, ScratchBuffer& buffer) const;
  const ImageTargets& targets() const { return *targets_; }
  /// Their class numbers; empty when the targets are no classes.
  const std::vector<int64_t>& labels() const;
  const ImageDatasetOptions& options() const { return options_; }
  /// Height and width of the images in a batch.
  ImageSize image_size() const { return size_; }
  /// The images that were skipped so far.
  std::vector<BadImage> bad_images() const { return bad_->all(); }

  /// The same data set with its images read from a pack, made of its `paths()`
  /// with its `options().decode`.
  std::shared_ptr<const ImageDataset> with_pack(
      std::shared_ptr<const ImagePack> pack) const;

 private:
  ImageDataset(
      std::vector<std::string> paths,
      std::shared_ptr<const ImageTargets> targets,
      std::shared_ptr<const ImageSource> source,
      const ImageDatasetOptions& options);

  void write_sample(
      int64_t index,
      const BatchContext& context,
      uint8_t* slot,
      SamplePlan& plan) const;
  /// Writes `index`, or what takes its place when it is bad.
  void write_readable(
      int64_t index,
      const BatchContext& context,
      uint8_t* slot,
      const torch::Tensor& targets,
      int64_t place) const;

  std::vector<std::string> paths_;
  std::shared_ptr<const ImageTargets> targets_;
  std::shared_ptr<const ImageSource> source_;  // null: the files at paths_
  ImageDatasetOptions options_;
  ImageSize size_;
  std::shared_ptr<const ImagePack> pack_;
  std::shared_ptr<BadImageList> bad_ = std::make_shared<BadImageList>();
};

}  // namespace tern
