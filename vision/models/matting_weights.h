#pragma once

#include <filesystem>

#include "tern/learner/model.h"
#include "tern/learner/state_dict.h"

namespace tern {

/// Gives a MattingBase or MattingRefine the weights of a file of any kind that
/// `load_weights` knows:
///
/// - what either of them has saved, or the paper's program: parts of the other
///   network are left out, and a refiner that the file has not keeps its
///   weights, as when MattingRefine goes on from a trained MattingBase;
/// - a DeepLabV3 for segmentation with the same backbone, as of the repository
///   VainF/DeepLabV3Plus-Pytorch, which is what the paper starts from: backbone
///   and ASPP are taken, but not the first convolution, which sees 3 channels.
///
///   MattingRefine net(MattingRefineOptions{.backbone = ...});
///   load_matting_weights(net, "base.pth");
///
/// \throws c10::ValueError if the file has weights of another backbone or none,
///         lacks some of a part or has them in another shape; the model then is
///         as it was. DataError, IoError as `load_weights`.
LoadReport load_matting_weights(Model model, const std::filesystem::path& file);

}  // namespace tern
