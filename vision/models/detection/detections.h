#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

struct DetectionOptions {
  /// Detections have larger scores.
  double score_thresh = 0.05;
  /// Candidates of each level, those with the largest scores.
  int64_t topk_candidates = 1000;
  /// Threshold of non-maximum suppression within each class.
  double nms_thresh = 0.5;
  /// Detections of an image, at most.
  int64_t detections_per_img = 300;
  /// Number of anchors of each level, in the order of the outputs. Empty:
  /// computed from the anchors, since each level begins with those centered at
  /// (0, 0); this synchronises with the device.
  std::vector<int64_t> anchors_per_level = {};
  /// Number of levels, if `anchors_per_level` is empty.
  int64_t levels = 5;
};

/// Returns the detections in a RetinaNet's outputs, by descending score:
/// torchvision's `postprocess_detections`, computed in kFloat.
///
///   const Tensors found = decode_detections(net->forward(images));
///   found[2][0];   // {17, 17, 0, -1, -1, ...}, the classes in image 0
///
/// \param outputs  As RetinaNet: cls_logits [N, A, C], bbox_regression [N, A,
///                 4], anchors [N, A, 4] and image_sizes [N, 2].
/// \return  boxes [N, D, 4] kFloat within the images, scores [N, D] kFloat and
///          labels [N, D] kLong, D = detections_per_img; after the last
///          detection 0, 0 and -1.
/// \throws c10::ValueError for other outputs, anchors whose levels are not
///         found, or options that are out of range.
Tensors decode_detections(
    const Tensors& outputs,
    const DetectionOptions& options = {});

}  // namespace tern
