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
  /// Null: no targets.
  std::shared_ptr<const ImageTargets> targets = nullptr;
  /// Reads the images; `paths` are then only names. Null: reads the files at
  /// `paths`.
  std::shared_ptr<const ImageSource> source = nullptr;
};

struct ImageDatasetOptions {
  /// Size of the images in a batch: 128 for a square, or ImageSize{height,
  /// width}. Unset: all images must have the size of the first image.
  std::optional<ImageSize> size = {};
  /// How files are decoded; `decode.channels` is the C of a batch.
  DecodeOptions decode = {};
  /// `train` is applied in training, `valid` in evaluation.
  TransformLists transforms = {};
  /// How images are resized.
  TransformOptions sizing = {};
  BadImagePolicy bad_images = {};
  /// Receives a warning for each image that is skipped, from the loader's
  /// worker threads (see SinkImpl); empty: `terminal()`.
  Sink sink = {};
};

/// A dataset of image files with targets.
///
/// A batch has inputs[0], [N, H, W, C] kByte, RGB, and targets as ImageTargets
/// defines them: for classes targets[0], [N] kLong. Every image is decoded,
/// transformed and sampled directly into the batch.
class ImageDataset final : public Dataset {
 public:
  /// Reads the header of the first image if `options.size` is not set.
  /// \param labels  Class index of each path.
  /// \throws c10::ValueError if the numbers of paths and labels differ or an
  ///         option is out of range; DataError if the first image is damaged.
  ImageDataset(
      std::vector<std::string> paths,
      const std::vector<int64_t>& labels,
      const ImageDatasetOptions& options = {});

  /// Creates a dataset with targets of any kind.
  explicit ImageDataset(
      TargetedImages images,
      const ImageDatasetOptions& options = {});

  int64_t size() const override { return std::ssize(images_.paths); }

  /// \throws DataError naming a file that is missing or damaged, or that
  ///         differs in size from the first image if `options.size` is not set.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;

  /// Returns the path of the image.
  std::string describe(int64_t index) const override {
    return paths().at(index);
  }

  /// Returns a reason if bad images are replaced, or if `other` decodes,
  /// resizes or transforms its images differently.
  std::string why_no_folds(const Dataset& other) const override;

  const std::vector<std::string>& paths() const { return images_.paths; }
  /// Null: the images are the files at `paths()`.
  const ImageSource* source() const { return images_.source.get(); }
  /// Returns the encoded image at `index`. If it is read from a file, the bytes
  /// are stored in `buffer`.
  std::span<const uint8_t> encoded(int64_t index, ScratchBuffer& buffer) const;
  /// Null: no targets.
  const ImageTargets* targets() const { return images_.targets.get(); }
  /// Returns the values of TensorTargets; undefined for other targets.
  torch::Tensor target_values() const;
  const ImageDatasetOptions& options() const { return options_; }
  /// Height and width of the images in a batch.
  ImageSize image_size() const { return size_; }
  /// Images skipped so far.
  std::vector<BadImage> bad_images() const { return bad_->all(); }

  /// Returns a copy of this dataset that reads its images from `pack`, which
  /// was created from its `paths()` with its `options().decode`.
  std::shared_ptr<const ImageDataset> with_pack(
      std::shared_ptr<const ImagePack> pack) const;
  /// Returns a copy of this dataset whose batches have images of `size`.
  /// \throws c10::ValueError for an invalid size.
  std::shared_ptr<const ImageDataset> with_size(ImageSize size) const;

 private:
  void write_sample(
      int64_t index,
      const BatchContext& context,
      uint8_t* slot,
      SamplePlan& plan) const;
  /// Writes sample `index`. If its image is bad and bad images are skipped,
  /// writes a replacement in training and nothing in evaluation.
  /// \return False if nothing was written, because the image is left out.
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

/// Returns `data` if it is an ImageDataset, or the first ImageDataset inside
/// Subsets and Concats; null if there is none.
const ImageDataset* find_images(const Dataset& data);

}  // namespace tern
