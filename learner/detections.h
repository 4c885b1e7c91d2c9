#pragma once

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/output_info.h"

namespace tern {

/// Returns the detections in a RetinaNet's outputs, by descending score, like
/// torchvision's `postprocess_detections`, computed in kFloat.
///
///   const Tensors found = decode_detections(net->forward(images));
///   found[2][0];   // {17, 17, 0, -1, -1, ...}, the classes in image 0
///
/// \param outputs  RetinaNet's outputs: cls_logits [N, A, C], bbox_regression
///                 [N, A, 4], anchors [N, A, 4] and image_sizes [N, 2].
/// \return boxes [N, D, 4] kFloat, clipped to the images, scores [N, D] kFloat
///         and labels [N, D] kLong, D = detections_per_img. Entries after the
///         last detection are 0, 0 and -1.
/// \throws c10::ValueError for outputs of a different form, anchors whose
///         levels cannot be determined, or options that are out of range.
Tensors decode_detections(
    const Tensors& outputs,
    const DetectionOptions& options = {});

}  // namespace tern
