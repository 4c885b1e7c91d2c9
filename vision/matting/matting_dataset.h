#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tern/data/dataset.h"
#include "tern/vision/decode/image_size.h"
#include "tern/vision/transforms/geometry.h"

namespace tern {

/// Foregrounds with their alphas, and backgrounds for them.
struct MattingFiles {
  /// pha[i] and fgr[i] belong together: a gray image of alpha and the colors
  /// of the foreground.
  std::vector<std::string> pha, fgr;
  /// Any photographs.
  std::vector<std::string> bgr;
};

/// Finds the images in `pairs/pha` and `pairs/fgr`, at any depth, matched by
/// their names without suffix, and those in `backgrounds`.
///
///   MattingFiles files = find_matting_files("alphamatting27", "streets");
///
/// \throws DataError if a folder is missing or has no image, if an image in pha
///         or fgr has no partner in the other, or if two share a name; IoError.
MattingFiles find_matting_files(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds);

/// Checks the header of every image of a pair, and the pixels of alphas that
/// are stored in color.
/// \throws DataError naming the file if alpha and foreground differ in size or
///         alpha is not gray, or if there are no or unequally many files.
void check_matting_files(const MattingFiles& files);

/// Draws a fraction `valid_pct` of the pairs and of the backgrounds for
/// validation. \return Training and validation files.
/// \throws c10::ValueError if that leaves no training or no validation files.
std::pair<MattingFiles, MattingFiles>
split_matting_files(const MattingFiles& files, double valid_pct, uint64_t seed);

/// Transforms of training images, applied by the loader's workers.
struct MattingTransforms {
  /// Applied to foreground and alpha alike; colors change in the foreground
  /// only.
  Transforms pair = {};
  Transforms background = {};
};

/// The transforms of BackgroundMattingV2: rotation by up to 5 degrees,
/// translation by up to 0.1, scale, shear by up to 5 degrees, flip, sometimes
/// blur or sharpening, and color jitter. Brightness, contrast and saturation
/// change by up to 15 %, at mid-gray, and the hue by 0.05 of the circle.
/// \param pair_scale  Scale of a foreground, relative to covering the batch's
///                    size; {0.3, 1} for the refining network.
MattingTransforms matting_transforms(
    Range pair_scale = {0.4f, 1},
    Range background_scale = {1, 2});

struct MattingDatasetOptions {
  /// Size of the images in a batch.
  ImageSize size = 512;
  /// For training batches.
  MattingTransforms transforms = matting_transforms();
};

/// Foregrounds with their alphas, and backgrounds, before compositing, which
/// `matting_augment` does on the device.
///
/// A batch has inputs fgr and bgr, both [N, H, W, 3] kByte, RGB, and the target
/// pha, [N, H, W] kByte. In training a foreground covers the size before it is
/// transformed, together with its alpha; in evaluation it fits in. Outside of a
/// foreground alpha is 0.
///
/// The number of samples is that of pairs or backgrounds, whichever is larger;
/// the others repeat. In training each epoch shifts the backgrounds by one.
class MattingDataset final : public Dataset {
 public:
  /// \throws DataError as `check_matting_files`; c10::ValueError for an invalid
  ///         size.
  explicit MattingDataset(
      MattingFiles files,
      MattingDatasetOptions options = {});

  int64_t size() const override {
    return std::max(std::ssize(files_.pha), std::ssize(files_.bgr));
  }
  /// \throws DataError naming a file that is missing or damaged.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  /// The path of the alpha.
  std::string describe(int64_t index) const override {
    return files_.pha[index % std::ssize(files_.pha)];
  }

 private:
  void write_pair(
      int64_t index,
      const BatchContext& context,
      uint8_t* fgr,
      uint8_t* pha) const;
  void write_background(
      int64_t index,
      const BatchContext& context,
      uint8_t* bgr) const;

  MattingFiles files_;
  MattingDatasetOptions options_;
};

}  // namespace tern
