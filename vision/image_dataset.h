#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/dataset.h"
#include "tern/vision/decode.h"
#include "tern/vision/image_size.h"

namespace tern {

struct ImageDatasetOptions {
  /// Height and width that every image is squeezed into. Unset: all images
  /// must have the size of the first, and another one is an error.
  std::optional<ImageSize> size = {};
  /// How files are decoded; `decode.channels` is the C of a batch.
  DecodeOptions decode = {};
};

/// Image files with a class each.
///
/// A batch has inputs[0], [N, H, W, C] kByte, RGB, and targets[0], [N] kLong.
/// Every image is decoded straight into its place in the batch.
class ImageDataset final : public Dataset {
 public:
  /// Reads the first image's header if no size is given.
  /// \param labels  One for each path.
  /// \throws c10::ValueError if the numbers of paths and labels differ or an
  ///         option is out of its range; DataError for a bad first image.
  ImageDataset(
      std::vector<std::string> paths,
      std::vector<int64_t> labels,
      const ImageDatasetOptions& options = {});

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }

  /// \throws DataError naming the file that is missing, broken or, without
  ///         `options.size`, of another size than the first.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;

  /// The path of the image.
  std::string describe(int64_t index) const override;

  const std::vector<std::string>& paths() const { return paths_; }
  const std::vector<int64_t>& labels() const { return labels_; }
  /// Height and width of the images in a batch.
  ImageSize image_size() const { return size_; }

 private:
  std::vector<std::string> paths_;
  std::vector<int64_t> labels_;
  ImageDatasetOptions options_;
  ImageSize size_;
};

}  // namespace tern
