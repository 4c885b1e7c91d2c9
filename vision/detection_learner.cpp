#include "tern/vision/detection_learner.h"

#include "tern/kernels/check.h"
#include "tern/learner/metrics/mean_average_precision.h"
#include "tern/vision/imagenet_normalization.h"

namespace tern {
namespace {

LearnerOptions with_defaults(
    LearnerOptions learner,
    const std::string& name,
    const std::optional<RetinaNetLossOptions>& loss) {
  if (!learner.loss) {
    const bool is_v2 = name.ends_with("_v2");
    learner.loss = retinanet_loss(loss.value_or(
        RetinaNetLossOptions{.box_loss = is_v2 ? BoxLoss::giou : BoxLoss::l1}));
  }
  if (learner.metrics.empty()) {
    learner.metrics = {
        mean_average_precision(),
        mean_average_precision({.iou = 0.5})};
  }
  return learner;
}

}  // namespace

Learner detection_learner(
    const DataBunch& data,
    const std::string& name,
    const DetectionLearnerOptions& options) {
  TORCH_CHECK_VALUE(
      !data.outputs.empty() && data.outputs[0].kind == TargetKind::boxes,
      "[detection_learner] the data has no boxes, according to "
      "data.outputs[0].kind; expected TargetKind::boxes. Give the DataBlock a "
      "labeller for boxes, or describe your own data in data.outputs.");
  const int64_t classes =
      options.classes != 0 ? options.classes : std::ssize(data.classes);
  TERN_CHECK_VALUE(
      classes > 0,
      "[detection_learner] classes is {} and the data has {} class names; "
      "expected at least one class. Set .classes.",
      options.classes,
      data.classes.size());
  if (options.learner.seed != 0) torch::manual_seed(options.learner.seed);
  const RetinaNet model = detection_model(
      name,
      classes,
      {.pretrained = options.pretrained,
       .file = options.file,
       .in_channels = options.in_channels,
       .frozen_norm = options.frozen_norm,
       .smallest_anchor = options.smallest_anchor,
       .sink = options.learner.sink});
  const bool is_pretrained = options.pretrained != DetectorWeights::none;
  Learner learn(
      is_pretrained ? imagenet_normalized(data) : data,
      model,
      with_defaults(options.learner, name, options.loss));
  learn.split(
      {"backbone.body." + model->arch().second_group(), "backbone.fpn"});
  if (is_pretrained) learn.freeze();
  return learn;
}

}  // namespace tern
