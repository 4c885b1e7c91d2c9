#include "tern/vision/target_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/upsampling.h>

namespace tern {
namespace {

/// [256, 3] kByte: neighbours far apart on the colour circle, 0 grey.
torch::Tensor class_colors() {
  torch::Tensor colors = torch::empty({256, 3}, torch::kByte);
  uint8_t* out = colors.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < 256; ++i) {
    constexpr double kGoldenAngle = 2.399963;
    const double value = i % 2 == 0 ? 0.95 : 0.7;
    for (int64_t channel = 0; channel < 3; ++channel) {
      const double wave = std::cos(
          static_cast<double>(i) * kGoldenAngle -
          static_cast<double>(channel) * 2.094395);
      *out++ = static_cast<uint8_t>(
          i == 0 ? 96 : std::lround(value * (127.5 + 127.5 * wave)));
    }
  }
  return colors;
}

}  // namespace

TargetKind target_kind(
    const torch::Tensor& targets,
    const std::vector<std::string>& classes) {
  if (!targets.is_floating_point()) {
    return targets.dim() >= 3 ? TargetKind::mask : TargetKind::category;
  }
  return targets.dim() == 2 && !classes.empty() &&
                 targets.size(1) == static_cast<int64_t>(classes.size())
             ? TargetKind::multi_category
             : TargetKind::number;
}

std::string class_name(const std::vector<std::string>& classes, int64_t index) {
  return index >= 0 && index < static_cast<int64_t>(classes.size())
             ? classes[static_cast<size_t>(index)]
             : fmt::format("class {}", index);
}

std::string target_text(
    TargetKind kind,
    const torch::Tensor& target,
    const std::vector<std::string>& classes) {
  if (kind == TargetKind::category) {
    return class_name(classes, target.item<int64_t>());
  }
  const torch::Tensor values = target.to(torch::kDouble).cpu().reshape({-1});
  std::vector<std::string> words;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double value = values[i].item<double>();
    if (kind == TargetKind::number) {
      words.push_back(fmt::format("{:.4g}", value));
    } else if (value > 0.5) {
      words.push_back(class_name(classes, i));
    }
  }
  return words.empty() ? "(none)" : fmt::format("{}", fmt::join(words, ", "));
}

torch::Tensor decoded(TargetKind kind, const torch::Tensor& preds) {
  switch (kind) {
    case TargetKind::number:
      return preds;
    case TargetKind::multi_category:
      return (preds > 0.5).to(torch::kFloat);
    default:
      // One channel alone is the probability of class 1.
      return preds.dim() == 1 || preds.size(1) == 1
                 ? (preds.dim() == 1 ? preds : preds.squeeze(1))
                       .gt(0.5)
                       .to(torch::kLong)
                 : preds.argmax(1);
  }
}

torch::Tensor with_mask(const torch::Tensor& image, const torch::Tensor& mask) {
  static const torch::Tensor palette = class_colors();
  torch::Tensor numbers = mask.cpu().to(torch::kLong);
  if (numbers.sizes() != image.sizes().slice(0, 2)) {
    namespace F = torch::nn::functional;
    numbers = F::interpolate(
                  numbers.to(torch::kFloat).unsqueeze(0).unsqueeze(0),
                  F::InterpolateFuncOptions()
                      .size(std::vector<int64_t>{image.size(0), image.size(1)})
                      .mode(torch::kNearest))[0][0]
                  .to(torch::kLong);
  }
  // A number that is no class, such as 255 for "ignore", has a colour too.
  const torch::Tensor colors =
      palette.index_select(0, numbers.remainder(256).reshape({-1}))
          .view({image.size(0), image.size(1), 3});
  return ((image.to(torch::kInt) + colors.to(torch::kInt)) / 2)
      .to(torch::kByte);
}

}  // namespace tern
