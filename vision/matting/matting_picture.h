#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

struct MattingPictureOptions {
  std::string title = {};
  /// The first so many scenes of the batch.
  int64_t count = 3;
  /// Height and width, in pixels, of the square that each picture fits into.
  int64_t tile = 176;
};

/// Draws scenes and what a network made of them, a row for each: the scene and
/// its background as the network got them, the true alpha and the network's,
/// the foreground over green, and how wrong the network takes itself to be.
///
/// \param batch    As `matting_augment` makes it.
/// \param outputs  Of a MattingBase or a MattingRefine.
/// \return         [H, W, 3] kByte.
/// \throws c10::ValueError for other tensors.
torch::Tensor matting_picture(
    const Batch& batch,
    const Tensors& outputs,
    const MattingPictureOptions& options = {});

/// The same of the first scenes of a split.
/// \param file  A PNG, replaced.
/// \throws c10::ValueError as above, or if the split is empty; IoError.
void show_mattes(
    Learner& learn,
    const std::filesystem::path& file,
    Split split = Split::valid,
    const MattingPictureOptions& options = {});

}  // namespace tern
