#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tern/learner/learner.h"
#include "tern/vision/models/detection/retinanet.h"
#include "tern/vision/models/detection/retinanet_loss.h"

namespace tern {

struct DetectionLearnerOptions {
  /// Pretrained weights of the detector. Its backbone then starts frozen.
  DetectorWeights pretrained = DetectorWeights::none;
  /// A file with these weights; empty: downloads them, see `fetch_weights`.
  std::filesystem::path file = {};
  /// Number of classes; 0: the size of `data.classes`.
  int64_t classes = 0;
  int64_t in_channels = 3;
  /// See DetectionModelOptions.
  std::optional<bool> frozen_norm = {};
  /// See RetinaNetOptions. Use a value below 32 for small objects.
  double smallest_anchor = 32;
  /// Unset: the box loss that torchvision uses for this network: L1, or
  /// generalized IoU for v2.
  std::optional<RetinaNetLossOptions> loss = {};
  /// The default metrics are mean average precision over COCO's thresholds, and
  /// at 0.5. A loss set here replaces `loss` above.
  LearnerOptions learner = {};
};

/// Creates a Learner for object detection. It has three layer groups: the first
/// part of the backbone, the second part, and the feature pyramid with the
/// heads.
///
///   BoxAnnotations coco = read_coco("instances.json", "images");
///   DataBlock cars{
///       .items = coco.items(),
///       .classes = coco.classes,
///       .boxes = coco.labeller()};
///   auto learn = detection_learner(
///       cars.bunch({.size = 320, .resize = ResizeMethod::pad}),
///       "retinanet_resnet18_fpn_v2",
///       {.pretrained = DetectorWeights::imagenet});
///   learn.fine_tune(10);
///
/// With pretrained weights and data without batch transforms, images are
/// normalized with ImageNet's statistics.
///
/// `get_preds` returns boxes [N, D, 4], scores [N, D] and labels [N, D], like
/// `decode_detections` with `data.outputs[0].detection`. `predict` returns the
/// detections with a score of at least `data.outputs[0].threshold`.
///
/// \param name  One of `detection_models()`.
/// \throws c10::ValueError if the data's targets are not boxes; the errors of
///         `detection_model`.
Learner detection_learner(
    const DataBunch& data,
    const std::string& name,
    const DetectionLearnerOptions& options = {});

}  // namespace tern
