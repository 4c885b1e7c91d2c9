#include "tern/vision/vision_learner.h"

#include <utility>

#include <fmt/format.h>
#include <torch/nn/modules/loss.h>

#include "tern/data/formats/json.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/transforms/augment_batch.h"

namespace tern {

namespace {

DataBunch normalised(DataBunch data, bool is_pretrained) {
  if (is_pretrained && data.batch_transforms.empty()) {
    const ImageStats stats = stats::imagenet();
    data.batch_transforms.push_back(normalize(stats.mean, stats.stddev));
    if (data.preprocessing) {
      data.preprocessing->mean = stats.mean;
      data.preprocessing->stddev = stats.stddev;
    }
  }
  return data;
}

// Several classes each: numbers, and yet classes are named.
bool has_class_vectors(const DataBunch& data) {
  if (data.classes.empty() || !data.train) return false;
  const auto* images =
      dynamic_cast<const ImageDataset*>(&data.train->dataset());
  const torch::Tensor values =
      images ? images->target_values() : torch::Tensor();
  return values.defined() && values.is_floating_point();
}

LearnerOptions with_loss(LearnerOptions options, const DataBunch& data) {
  if (!options.loss && has_class_vectors(data)) {
    options.loss = torch::nn::BCEWithLogitsLoss();
  }
  return options;
}

// What builds a VisionModel again.
struct Description {
  std::string body;
  int64_t in_channels = 3, outputs = 0;
  HeadOptions head = {};
};

JsonFields fields_of(Description& what) {
  return {
      {"body", &what.body},
      {"in_channels", &what.in_channels},
      {"outputs", &what.outputs},
      {"hidden", &what.head.hidden},
      {"dropout", &what.head.dropout},
      {"concat_pool", &what.head.concat_pool}};
}

}  // namespace

VisionModelImpl::VisionModelImpl(
    VisionArch arch,
    int64_t in_channels,
    int64_t outputs,
    HeadOptions head)
    : arch_(std::move(arch)),
      in_channels_(in_channels),
      outputs_(outputs),
      head_options_(std::move(head)) {
  reset();
}

void VisionModelImpl::reset() {
  body_ = arch_.make_body(in_channels_);
  register_module("body", body_->module);
  head_ = register_module(
      "head",
      classifier_head(
          body_->backbone->stage_channels().back(),
          outputs_,
          head_options_));
}

torch::Tensor VisionModelImpl::forward(const torch::Tensor& x) {
  return head_->forward(body_->backbone->features(x));
}

Architecture VisionModelImpl::architecture() const {
  Description now{arch_.name(), in_channels_, outputs_, head_options_};
  return {"vision_model", to_json(fields_of(now))};
}

VisionModel build_vision_model(const Architecture& architecture) {
  Description now;
  read_json(
      architecture.options,
      fields_of(now),
      "the options of " + architecture.name);
  return VisionModel(
      VisionArch(now.body),
      now.in_channels,
      now.outputs,
      now.head);
}

VisionLearner::VisionLearner(
    const DataBunch& data,
    Model model,
    const VisionArch& arch,
    const std::string& first_new,
    bool is_pretrained,
    LearnerOptions options)
    : Learner(
          normalised(data, is_pretrained),
          std::move(model),
          with_loss(std::move(options), data)) {
  std::vector<std::string> groups = {first_new};
  if (!arch.second_group().empty()) {
    groups.insert(groups.begin(), "body." + arch.second_group());
  }
  split(groups);
  if (is_pretrained) freeze();
}

VisionLearner vision_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const VisionOptions& options) {
  if (options.learner.seed != 0) torch::manual_seed(options.learner.seed);
  const VisionModel model(
      arch,
      options.in_channels,
      outputs_for(data, options.outputs),
      options.head);
  const bool is_pretrained = !options.pretrained.empty();
  if (is_pretrained) {
    arch.load_pretrained(model->body(), options.pretrained);
  }
  return {data, model, arch, "head", is_pretrained, options.learner};
}

int64_t outputs_for(const DataBunch& data, int64_t given) {
  const int64_t outputs =
      given != 0 ? given : static_cast<int64_t>(data.classes.size());
  TORCH_CHECK_VALUE(
      outputs > 0,
      fmt::format(
          "[vision_learner] outputs is {} and the data name {} classes; "
          "expected a number of outputs. Set .outputs, for numbers to predict "
          "how many there are.",
          given,
          data.classes.size()));
  return outputs;
}

VisionLearner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options) {
  if (options.learner.seed != 0) torch::manual_seed(options.learner.seed);
  const DynamicUnet model(
      arch,
      DynamicUnetOptions{
          .outputs = outputs_for(data, options.outputs),
          .in_channels = options.in_channels,
          .blur = options.blur,
          .last_cross = options.last_cross});
  const bool is_pretrained = !options.pretrained.empty();
  if (is_pretrained) {
    arch.load_pretrained(model->body(), options.pretrained);
  }
  return {data, model, arch, "bn", is_pretrained, options.learner};
}

}  // namespace tern
