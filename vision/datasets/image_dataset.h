#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/data/support/sink.h"
#include "tern/vision/datasets/bad_images.h"
#include "tern/vision/datasets/image_targets.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/image_size.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

class ImagePack;

/// Images and their targets.
struct TargetedImages {
  std::vector<std::string> paths = {};
  /// Null: none.
  std::shared_ptr<const ImageTargets> targets = nullptr;
  /// Reads the images; `paths` are then names only. Null: the files at `paths`.
  std::shared_ptr<const ImageSource> source = nullptr;
};

struct ImageDatasetOptions {
  /// Size of the images in a batch: 128 for a square, or ImageSize{height,
  /// width}. Unset: all images must have the size of the first.
  std::optional<ImageSize> size = {};
  /// How files are decoded; `decode.channels` is the C of a batch.
  DecodeOptions decode = {};
  /// `train` for training batches, `valid` for others.
  TransformLists transforms = {};
  /// How images are resized.
  TransformOptions sizing = {};
  BadImagePolicy bad_images = {};
  /// Receives a warning for each image that is skipped, from the loader's
  /// worker threads (see SinkImpl); empty: `terminal()`.
  Sink sink = {};
};

/// Image files with one target each.
///
/// A batch has inputs[0], [N, H, W, C] kByte, RGB, and targets[0], [N] kLong
/// for classes. Every image is decoded, transformed and sampled directly into
/// the batch.
class ImageDataset final : public Dataset {
 public:
  /// Reads the first image's header if no size is given.
  /// \param labels  Class index of each path.
  /// \throws c10::ValueError if the numbers of paths and labels differ or an
  ///         option is out of its range; DataError for a bad first image.
  ImageDataset(
      std::vector<std::string> paths,
      std::vector<int64_t> labels,
      const ImageDatasetOptions& options = {});

  /// The same with targets of any type.
  explicit ImageDataset(
      TargetedImages images,
      const ImageDatasetOptions& options = {});

  int64_t size() const override { return std::ssize(images_.paths); }

  /// \throws DataError naming a file that is missing, damaged or, without
  ///         `options.size`, of another size than the first.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;

  /// The path of the image.
  std::string describe(int64_t index) const override {
    return paths().at(index);
  }

  /// \return Something if bad images are replaced, or if the images of `other`
  ///         are decoded, resized or transformed in another way.
  std::string why_no_folds(const Dataset& other) const override;

  const std::vector<std::string>& paths() const { return images_.paths; }
  /// Null: the images are the files at `paths()`.
  const ImageSource* source() const { return images_.source.get(); }
  /// Returns the encoded image at `index`, in `buffer` if it had to be read.
  std::span<const uint8_t> encoded(int64_t index, ScratchBuffer& buffer) const;
  /// Null: there are none.
  const ImageTargets* targets() const { return images_.targets.get(); }
  /// The values of TensorTargets; undefined for others.
  torch::Tensor target_values() const;
  const ImageDatasetOptions& options() const { return options_; }
  /// Height and width of the images in a batch.
  ImageSize image_size() const { return size_; }
  /// Images skipped so far.
  std::vector<BadImage> bad_images() const { return bad_->all(); }

  /// Returns this dataset with its images read from a pack that was created
  /// from its `paths()` with its `options().decode`.
  std::shared_ptr<const ImageDataset> with_pack(
      std::shared_ptr<const ImagePack> pack) const;
  /// Returns this dataset with images of another size in its batches.
  /// \throws c10::ValueError for an invalid size.
  std::shared_ptr<const ImageDataset> with_size(ImageSize size) const;

 private:
  void write_sample(
      int64_t index,
      const BatchContext& context,
      uint8_t* slot,
      SamplePlan& plan) const;
  /// Writes sample `index`, or in training its replacement if the image is bad.
  /// \return False if the image is bad and to be left out.
  bool write_readable(
      int64_t index,
      const BatchContext& context,
      uint8_t* slot,
      const Tensors& targets,
      int64_t place) const;

  TargetedImages images_;
  ImageDatasetOptions options_;
  ImageSize size_;
  std::shared_ptr<const ImagePack> pack_;
  std::shared_ptr<BadImageList> bad_;
};

/// Returns a dataset as images, or the first images of the Subsets and Concats
/// around them; null if there are none.
const ImageDataset* find_images(const Dataset& data);

}  // namespace tern
