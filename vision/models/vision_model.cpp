#include "tern/vision/models/vision_model.h"

#include <string>
#include <utility>

#include "tern/data/formats/json.h"

namespace tern {

namespace {

// Options that `build_vision_model` reads.
JsonFields fields_of(
    std::string& body,
    int64_t& in_channels,
    int64_t& outputs,
    HeadOptions& head) {
  return {
      {"body", &body},
      {"in_channels", &in_channels},
      {"outputs", &outputs},
      {"hidden", &head.hidden},
      {"dropout", &head.dropout},
      {"concat_pool", &head.concat_pool},
      {"y_range", &head.y_range},
      {"points", &head.points}};
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
  HeadOptions head = head_options_;
  head.pool = body_->backbone->has_maps();
  head_ = register_module(
      "head",
      classifier_head(
          body_->backbone->stage_channels().back(),
          head.points ? 2 * outputs_ : outputs_,
          head));
}

torch::Tensor VisionModelImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = head_->forward(body_->backbone->features(x));
  if (!head_options_.points) return y;
  // The outputs are fractions of the image's width and height. An untrained
  // head predicts the image's center, and the margin lets the sigmoid reach the
  // edges. Computed in fp32, because fp16 resolves a quarter of a pixel at
  // best.
  constexpr double kMargin = 0.05;
  const torch::Tensor shares =
      y.to(torch::kFloat).view({-1, outputs_, 2}).sigmoid() *
          (1 + 2 * kMargin) -
      kMargin;
  return torch::stack(
      {shares.select(2, 0) * x.size(3), shares.select(2, 1) * x.size(2)},
      2);
}

Architecture VisionModelImpl::architecture() const {
  if (!arch_.is_known()) return {};
  std::string body = arch_.name();
  int64_t in_channels = in_channels_, outputs = outputs_;
  HeadOptions head = head_options_;
  JsonFields fields = fields_of(body, in_channels, outputs, head);
  // Earlier versions of Tern do not have the field "points".
  if (!head.points) fields.pop_back();
  return {"vision_model", to_json(fields)};
}

VisionModel build_vision_model(const Architecture& architecture) {
  std::string body;
  int64_t in_channels = 3, outputs = 0;
  HeadOptions head;
  read_json(
      architecture.options,
      fields_of(body, in_channels, outputs, head),
      "the options of " + architecture.name);
  return VisionModel(VisionArch(body), in_channels, outputs, head);
}

}  // namespace tern
