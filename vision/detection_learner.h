#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tern/learner/learner.h"
#include "tern/vision/models/detection/retinanet.h"
#include "tern/vision/models/detection/retinanet_loss.h"

namespace tern {

struct DetectionLearnerOptions {
  /// Weights that the detector starts with; its body then starts frozen.
  DetectorWeights pretrained = DetectorWeights::none;
  /// A file with these weights; empty: they are fetched, see `fetch_weights`.
  std::filesystem::path file = {};
  /// Number of classes; 0: that of `data.classes`.
  int64_t classes = 0;
  int64_t in_channels = 3;
  /// See DetectionModelOptions.
  std::optional<bool> frozen_norm = {};
  /// See RetinaNetOptions: 32, or less for smaller objects.
  double smallest_anchor = 32;
  /// Unset: as torchvision trains this network, L1 or, for v2, generalized IoU.
  std::optional<RetinaNetLossOptions> loss = {};
  /// Without metrics: mean average precision over COCO's thresholds and at 0.5.
  /// A loss here takes the place of the one above.
  LearnerOptions learner = {};
};

/// Creates a Learner for object detection, in three layer groups: the first and
/// the second part of the body, and the feature pyramid with the heads.
///
///   BoxAnnotations coco = read_coco("instances.json", "images");
///   DataBlock cars{
///       .items = coco.items(),
///       .classes = coco.classes,
///       .boxes = coco.labeller()};
///   auto learn = detection_learner(
///       cars.bunch({.size = 320, .resize = ResizeMethod::pad}),
///       "retinanet_resnet18_fpn",
///       {.pretrained = DetectorWeights::imagenet});
///   learn.fine_tune(10);
///
/// `get_preds` gives boxes [N, D, 4], scores [N, D] and labels [N, D], as
/// `decode_detections` does with `data.outputs[0].detection`; `predict` gives
/// those with a score of at least `data.outputs[0].threshold`.
///
/// \param name  One of `detection_models()`.
/// \throws c10::ValueError if the data have no boxes, and as `detection_model`.
Learner detection_learner(
    const DataBunch& data,
    const std::string& name,
    const DetectionLearnerOptions& options = {});

}  // namespace tern
