#pragma once

#include <filesystem>

#include "tern/learner/model.h"
#include "tern/learner/state_dict.h"

namespace tern {

/// Loads weights into a MattingBase or MattingRefine from a file in any format
/// that `load_weights` supports:
///
/// - weights of either network, saved by Tern or the paper's code: parts of the
/// other
///   network are ignored, and a refiner that is missing in the file keeps its
///   weights, as when MattingRefine continues from a trained MattingBase;
/// - a DeepLabV3 for segmentation with the same backbone, as of the repository
///   VainF/DeepLabV3Plus-Pytorch, from which the paper starts: backbone
///   and ASPP are loaded, but not the first convolution, which has 3 channels.
///
///   MattingRefine net(MattingRefineOptions{.backbone = ...});
///   load_matting_weights(net, "base.pth");
///
/// \throws c10::ValueError if the file has weights of another backbone or none,
///         or some weights of a part are missing or have another shape; the
///         model is then unchanged. DataError, IoError as `load_weights`.
LoadReport load_matting_weights(Model model, const std::filesystem::path& file);

}  // namespace tern
