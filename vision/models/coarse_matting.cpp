#include "tern/vision/models/coarse_matting.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

namespace tern {

namespace {

constexpr int64_t kInputs = 6;  // src and bgr
constexpr int64_t kHidden = 32;
constexpr int64_t kOutputStride = 16;

constexpr std::array<std::pair<const char*, MattingBackbone>, 3> kBackbones = {
    {{"mobilenet_v2", MattingBackbone::mobilenet_v2},
     {"resnet50", MattingBackbone::resnet50},
     {"resnet101", MattingBackbone::resnet101}}};

VisionBody make_backbone(MattingBackbone backbone) {
  if (backbone == MattingBackbone::mobilenet_v2) {
    return VisionBody(mobilenet_v2({.num_classes = 0,
                                    .in_channels = kInputs,
                                    .output_stride = kOutputStride,
                                    .last_convolution = false})
                          .ptr());
  }
  const auto make =
      backbone == MattingBackbone::resnet50 ? resnet50 : resnet101;
  return VisionBody(make({.num_classes = 0,
                          .in_channels = kInputs,
                          .output_stride = kOutputStride})
                        .ptr());
}

MattingDecoder decoder_for(const std::vector<int64_t>& stages) {
  return MattingDecoder(
      std::array<int64_t, 5>{256, 128, 64, 48, 1 + 3 + 1 + kHidden},
      std::array<int64_t, 4>{stages[2], stages[1], stages[0], kInputs});
}

std::string describe(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format(
      "[{}] {} on {}",
      fmt::join(tensor.sizes(), ", "),
      c10::toString(tensor.scalar_type()),
      tensor.device().str());
}

}  // namespace

std::string to_string(MattingBackbone backbone) {
  for (const auto& [name, known] : kBackbones) {
    if (known == backbone) return name;
  }
  return "unknown";
}

MattingBackbone matting_backbone(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, backbone] : kBackbones) {
    if (known == name) return backbone;
    names.emplace_back(known);
  }
  if (name == "mobilenetv2") return MattingBackbone::mobilenet_v2;
  throw c10::ValueError(
      {__func__, __FILE__, __LINE__},
      fmt::format(
          "[matting_backbone] there is no backbone \"{}\"; expected one of {}.",
          name,
          fmt::join(names, ", ")));
}

CoarseMatting::CoarseMatting(MattingBackbone backbone, torch::nn::Module& owner)
    : backbone_(make_backbone(backbone)),
      aspp_(
          backbone_.backbone->stage_channels().back(),
          std::vector<int64_t>{3, 6, 9}),
      decoder_(decoder_for(backbone_.backbone->stage_channels())) {
  owner.register_module("backbone", backbone_.module);
  owner.register_module("aspp", aspp_);
  owner.register_module("decoder", decoder_);
}

MattingOutput CoarseMatting::forward(
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  const torch::Tensor images =
      torch::cat({src, bgr}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensors stages = backbone_.backbone->stages(images);
  const torch::Tensor seen = decoder_->forward(
      aspp_->forward(stages.back()),
      {stages[2], stages[1], stages[0], images});
  const Tensors parts = seen.split_with_sizes({1, 3, 1, kHidden}, 1);
  return {
      parts[0].clamp(0, 1),
      parts[1],
      parts[2].clamp(0, 1),
      parts[3].relu()};
}

void check_matting_inputs(
    const char* where,
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  const bool is_right = src.defined() && bgr.defined() && src.dim() == 4 &&
                        src.size(1) == 3 && src.numel() > 0 &&
                        src.is_floating_point() && bgr.sizes() == src.sizes() &&
                        bgr.scalar_type() == src.scalar_type() &&
                        bgr.device() == src.device();
  TORCH_CHECK_VALUE(
      is_right,
      fmt::format(
          "[{}] src is {} and bgr is {}; expected two batches [N, 3, H, W] of "
          "one shape, floating type and device, RGB in 0..1. Give each picture "
          "with its background.",
          where,
          describe(src),
          describe(bgr)));
}

}  // namespace tern
