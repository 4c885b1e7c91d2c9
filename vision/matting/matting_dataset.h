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

/// Paths of foregrounds with their alphas, and of backgrounds.
struct MattingFiles {
  /// pha[i] is a gray image with the alpha of the foreground fgr[i].
  std::vector<std::string> pha, fgr;
  /// Any photos.
  std::vector<std::string> bgr;
};

/// Finds the images in `pairs/pha` and `pairs/fgr`, recursively, and pairs
/// images with the same name apart from the suffix. Also finds the images in
/// `backgrounds`.
///
///   MattingFiles files = find_matting_files("alphamatting27", "streets");
///
/// \throws DataError if a folder is missing or has no images, if an image in
///         pha or fgr has no partner in the other folder, or if two images in a
///         folder have the same name; IoError.
MattingFiles find_matting_files(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds);

/// Checks the header of every image of a pair, and the pixels of alphas that
/// are stored in color.
/// \throws DataError naming the file if alpha and foreground differ in size or
///         if an alpha is not gray; DataError if there are no files, or if the
///         numbers of alphas and foregrounds differ.
void check_matting_files(const MattingFiles& files);

/// Splits the files at random: a fraction `valid_pct` of the pairs and of the
/// backgrounds is for validation.
/// \return  Training and validation files.
/// \throws c10::ValueError if there would be no training or no validation
///         files.
std::pair<MattingFiles, MattingFiles>
split_matting_files(const MattingFiles& files, double valid_pct, uint64_t seed);

/// Transforms of training images, applied by the data loader's workers.
struct MattingTransforms {
  /// Applied to foreground and alpha together; changes of color apply to the
  /// foreground only.
  Transforms pair = {};
  Transforms background = {};
};

/// Returns the transforms of BackgroundMattingV2: rotation by up to 5 degrees,
/// translation by up to 0.1, scale, shear by up to 5 degrees, flip, occasional
/// blur or sharpening, and color jitter. Brightness, contrast and saturation
/// change by up to 15% at mid-gray, and the hue by up to 0.05 of the circle.
/// \param pair_scale  Scale of a foreground, where 1 covers the size of the
///                    batch; {0.3, 1} for the refining network.
MattingTransforms matting_transforms(
    Range pair_scale = {0.4f, 1},
    Range background_scale = {1, 2});

struct MattingDatasetOptions {
  /// Size of the images in a batch.
  ImageSize size = 512;
  /// Transforms of training batches.
  MattingTransforms transforms = matting_transforms();
};

/// Foregrounds with their alphas, and backgrounds. `matting_augment` composites
/// them on the device.
///
/// A batch has the inputs fgr and bgr, both [N, H, W, 3] kByte, RGB, and the
/// target pha, [N, H, W] kByte. In training, a foreground and its alpha are
/// resized to cover the batch's size and then transformed. In evaluation they
/// are resized to fit into it. Alpha is 0 outside the foreground image.
///
/// The number of samples is the number of pairs or of backgrounds, whichever is
/// larger; the smaller set repeats. In training, each epoch shifts the
/// backgrounds by one sample.
class MattingDataset final : public Dataset {
 public:
  /// \throws the errors of `check_matting_files`; c10::ValueError for an
  ///         invalid size.
  explicit MattingDataset(
      MattingFiles files,
      MattingDatasetOptions options = {});

  int64_t size() const override {
    return std::max(std::ssize(files_.pha), std::ssize(files_.bgr));
  }
  /// \throws DataError naming a file that is missing or damaged.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  /// Returns the path of the alpha.
  std::string describe(int64_t index) const override {
    return files_.pha[index % std::ssize(files_.pha)];
  }
  /// Always returns a reason: the shorter of the two lists is repeated, so
  /// samples of different folds share a file.
  std::string why_no_folds(const Dataset& other) const override;

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
