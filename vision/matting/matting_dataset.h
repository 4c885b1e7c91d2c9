#pragma once

#include <cstdint>
#include <string>

#include "tern/data/dataset.h"
#include "tern/vision/image_size.h"
#include "tern/vision/matting/matting_files.h"
#include "tern/vision/matting/matting_transforms.h"

namespace tern {

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
