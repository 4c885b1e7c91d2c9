#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tern/data/dataset.h"
#include "tern/vision/image_size.h"
#include "tern/vision/transforms/geometry.h"

namespace tern {

/// Photographs of things with their alphas, and what they can stand before.
struct MattingFiles {
  /// pha[i] and fgr[i] belong together: a grey picture of alpha and the colours
  /// of what is in front.
  std::vector<std::string> pha, fgr;
  /// Any photographs.
  std::vector<std::string> bgr;
};

/// The pictures in `pairs/pha` and `pairs/fgr`, at any depth, which go together
/// by their names without suffix, and those in `backgrounds`.
///
///   MattingFiles files = find_matting_files("alphamatting27", "streets");
///
/// \throws DataError if a folder is missing or has no picture, or if a picture
///         of one of pha and fgr has no partner in the other; IoError.
MattingFiles find_matting_files(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds);

/// Looks at the header of every picture of a pair, and into alphas that are
/// stored in colour.
/// \throws DataError naming the file if alpha and foreground differ in size or
///         alpha is not grey; as `find_matting_files` for their numbers.
void check_matting_files(const MattingFiles& files);

/// Draws the share `valid_pct` of the pairs and of the backgrounds to check
/// with; the first are those to learn from.
/// \throws c10::ValueError if that leaves none on a side.
std::pair<MattingFiles, MattingFiles>
split_matting_files(const MattingFiles& files, double valid_pct, uint64_t seed);

/// What happens to training pictures when they are read, by the loader's
/// workers.
struct MattingTransforms {
  /// To foreground and alpha alike; colours change in the foreground only.
  Transforms pair = {};
  Transforms background = {};
};

/// BackgroundMattingV2's: turned by up to 5 degrees, moved by up to 0.1,
/// enlarged and slanted by up to 5 degrees, mirrored, now and then blurred or
/// sharpened, and other in colour. Brightness, contrast and saturation differ
/// by up to 15 %, at mid-grey, and the hue by 0.05 of the circle.
/// \param pair_scale  How large a foreground becomes, as a share of what would
///                    cover the batch's size; the refining network's is {0.3,
///                    1}.
MattingTransforms matting_transforms(
    Range pair_scale = {0.4f, 1},
    Range background_scale = {1, 2});

struct MattingDatasetOptions {
  /// Height and width that every picture gets.
  ImageSize size = 512;
  /// For batches that are for training.
  MattingTransforms transforms = matting_transforms();
};

/// Foregrounds with their alphas, and backgrounds, not put together yet:
/// `matting_augment` does that on the device.
///
/// A batch has inputs fgr and bgr, both [N, H, W, 3] kByte, RGB, and the target
/// pha, [N, H, W] kByte. For training a foreground covers the size before it is
/// transformed, together with its alpha, by one matrix; otherwise the whole of
/// it fits in. What lies beyond a foreground is transparent.
///
/// There are as many samples as there are pairs or backgrounds, whichever are
/// more; the others come again. While training, each epoch shifts the
/// backgrounds by one, so that a pair stands before others.
class MattingDataset final : public Dataset {
 public:
  /// \throws DataError as `check_matting_files`; c10::ValueError for a size
  ///         that is none.
  explicit MattingDataset(
      MattingFiles files,
      MattingDatasetOptions options = {});

  int64_t size() const override;
  /// \throws DataError naming the file that is missing or broken.
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override;
  /// The path of the alpha.
  std::string describe(int64_t index) const override;

  const MattingFiles& files() const { return files_; }

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
