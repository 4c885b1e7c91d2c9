#pragma once

#include <cstdint>
#include <filesystem>

#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/vision_learner.h"

namespace tern {

struct UnetLearnerOptions {
  /// As VisionOptions::pretrained.
  std::filesystem::path pretrained = {};
  /// Classes of pixels; 0: as many as `data.classes` names.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  bool blur = false;       // see DynamicUnetOptions
  bool last_cross = true;  // see DynamicUnetOptions
  /// Without a loss, cross-entropy over all pixels.
  LearnerOptions learner = {};
};

/// A Learner that says for each pixel what it belongs to: a DynamicUnet on the
/// body of a known network. The data's targets are masks.
///
///   auto learn = unet_learner(
///       streets,
///       resnet18,
///       {.outputs = 11,  // class 11 is void
///        .learner = {.loss = nn::CrossEntropyLoss(
///                        nn::CrossEntropyLossOptions().ignore_index(11)),
///                    .metrics = {dice()}}});
///
/// Layer groups and freezing are those of `vision_learner`; what is new is the
/// last group. As fastai v2's unet_learner.
///
/// \throws as `vision_learner`.
VisionLearner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options = {});

}  // namespace tern
