#include "tern/vision/vision_learner.h"

#include <torch/nn/modules/loss.h>

#include "tern/kernels/check.h"
#include "tern/learner/losses/losses.h"
#include "tern/vision/datasets/box_targets.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/imagenet_normalization.h"

namespace tern {

namespace {

// True if images have several classes: the targets are then floating-point
// numbers although the data has class names.
bool has_class_vectors(const DataBunch& data) {
  if (data.classes.empty() || !data.train) return false;
  const ImageDataset* const images = find_images(data.train->dataset());
  const torch::Tensor values =
      images ? images->target_values() : torch::Tensor();
  return values.defined() && values.is_floating_point();
}

bool has_points(const DataBunch& data) {
  return !data.outputs.empty() && data.outputs[0].kind == TargetKind::points;
}

LearnerOptions with_loss(LearnerOptions options, const DataBunch& data) {
  if (options.loss) return options;
  if (has_points(data)) {
    options.loss = points_loss();
  } else if (has_class_vectors(data)) {
    options.loss = torch::nn::BCEWithLogitsLoss();
  }
  return options;
}

// Returns the number of points per image, or 0 if it is unknown.
int64_t points_of(const DataBunch& data) {
  const ImageDataset* const images =
      data.train ? find_images(data.train->dataset()) : nullptr;
  const auto* points =
      images ? dynamic_cast<const PointTargets*>(images->targets()) : nullptr;
  return points ? points->points() : std::ssize(data.outputs[0].names);
}

// Returns `given`, or if it is 0, one output per class or point.
int64_t outputs_for(const DataBunch& data, int64_t given) {
  const int64_t outputs = given != 0         ? given
                          : has_points(data) ? points_of(data)
                                             : std::ssize(data.classes);
  TERN_CHECK_VALUE(
      outputs > 0,
      "[vision_learner] outputs is {} and the data has {} class names; "
      "expected a number of outputs. Set .outputs, for regression to the "
      "number of values per image.",
      given,
      data.classes.size());
  return outputs;
}

// Loads pretrained weights, if any, and downloads them if necessary; progress
// messages go to the Learner's sink.
void load(
    const VisionArch& arch,
    const VisionBody& body,
    const Pretrained& pretrained,
    const Sink& sink) {
  if (!pretrained) return;
  const std::filesystem::path file =
      pretrained.is_published()
          ? fetch_weights(arch.published(), {.sink = sink})
          : pretrained.file();
  arch.load_pretrained(body, file);
}

// \param first_new   First module of the new layers.
// \param make_model  Creates the model for a number of outputs.
template <class Options, class MakeModel>
Learner learner_on_body(
    const DataBunch& data,
    const VisionArch& arch,
    const Options& options,
    const std::string& first_new,
    const MakeModel& make_model) {
  if (options.learner.seed != 0) torch::manual_seed(options.learner.seed);
  const auto model = make_model(outputs_for(data, options.outputs));
  load(arch, model->body(), options.pretrained, options.learner.sink);
  const bool is_pretrained = bool{options.pretrained};
  Learner learn(
      is_pretrained ? imagenet_normalized(data) : data,
      model,
      with_loss(options.learner, data));
  std::vector<std::string> groups = {first_new};
  if (!arch.second_group().empty()) {
    groups.insert(groups.begin(), "body." + arch.second_group());
  }
  learn.split(groups);
  if (is_pretrained) learn.freeze();
  return learn;
}

}  // namespace

Learner vision_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const VisionOptions& options) {
  HeadOptions head = options.head;
  head.points = head.points || has_points(data);
  return learner_on_body(data, arch, options, "head", [&](int64_t outputs) {
    return VisionModel(arch, options.in_channels, outputs, head);
  });
}

Learner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options) {
  return learner_on_body(data, arch, options, "bn", [&](int64_t outputs) {
    return DynamicUnet(
        arch,
        DynamicUnetOptions{
            .outputs = outputs,
            .in_channels = options.in_channels,
            .blur = options.blur,
            .last_cross = options.last_cross});
  });
}

}  // namespace tern
