#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tern/vision/transforms/augment_batch.h"

// Renders plans with ATen operations on the CPU: the reference for the fast
// implementations.

namespace tern::testing_support {

using Plans = std::vector<SamplePlan>;

/// Returns a value of each plan as [N, 1, 1, 1] kFloat.
template <class Value>
torch::Tensor
column(const Plans& plans, torch::Device device, const Value& value) {
  std::vector<float> values;
  for (const SamplePlan& plan : plans) {
    values.push_back(value(plan));
  }
  return torch::tensor(values).view({-1, 1, 1, 1}).to(device);
}

template <class Predicate>
bool any(const Plans& plans, const Predicate& predicate) {
  return std::any_of(plans.begin(), plans.end(), predicate);
}

inline torch::Tensor to_bytes(const torch::Tensor& values) {
  return values.mul(255).add(0.5).clamp(0, 255).floor().to(torch::kByte);
}

/// Like `turn_circle`, for [N, H, W, 3] in 0..1.
inline torch::Tensor with_hue(
    const torch::Tensor& rgb,
    const torch::Tensor& turn) {
  const torch::Tensor high = rgb.amax(3, /*keepdim=*/true);
  const torch::Tensor range = high - rgb.amin(3, /*keepdim=*/true);
  const torch::Tensor r = rgb.slice(3, 0, 1), g = rgb.slice(3, 1, 2),
                      b = rgb.slice(3, 2, 3);
  const torch::Tensor safe = range.clamp_min(1e-9);
  const torch::Tensor sixth =
      torch::where(
          high == r,
          (g - b) / safe,
          torch::where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe)) +
      turn * 6;
  const torch::Tensor start =
      torch::tensor({5.f, 3.f, 1.f}, torch::TensorOptions(rgb.device()));
  const torch::Tensor k = torch::remainder(start + sixth, 6);
  return high - range * torch::minimum(k, 4 - k).clamp(0, 1);
}

/// Looks up every value of [N, ...] kByte in its sample's table.
inline torch::Tensor look_up(
    const torch::Tensor& images,
    const torch::Tensor& tables) {
  const int64_t count = images.size(0);
  return tables.gather(1, images.reshape({count, -1}).to(torch::kLong))
      .view(images.sizes());
}

inline torch::Tensor tables_of(
    const Plans& plans,
    const std::function<Lighting(const SamplePlan&)>& lighting) {
  torch::Tensor tables =
      torch::empty({static_cast<int64_t>(plans.size()), 256}, torch::kByte);
  uint8_t* to = tables.mutable_data_ptr<uint8_t>();
  for (const SamplePlan& plan : plans) {
    const auto table = lighting(plan).table();
    to = std::copy(table.begin(), table.end(), to);
  }
  return tables;
}

/// Applies brightness, contrast, saturation and hue to [N, H, W, 3] kByte.
inline torch::Tensor mix_colors(
    const torch::Tensor& images,
    const Plans& plans) {
  const torch::Device device = images.device();
  const auto number = [&](float Lighting::*field) {
    return column(plans, device, [field](const SamplePlan& plan) {
      return plan.lighting.*field;
    });
  };
  const torch::Tensor x =
      (images.to(torch::kFloat) / 255).clamp(1e-7, 1 - 1e-7);
  const torch::Tensor logit = torch::log(x / (1 - x));
  const torch::Tensor gray =
      (logit *
       torch::tensor({0.2989f, 0.5870f, 0.1140f}, torch::TensorOptions(device)))
          .sum(3, /*keepdim=*/true);
  const torch::Tensor keep = number(&Lighting::saturation);
  const torch::Tensor mixed =
      (logit * keep + gray * (1 - keep)) * number(&Lighting::scale) +
      number(&Lighting::shift);
  return with_hue(torch::sigmoid(mixed), number(&Lighting::hue));
}

inline torch::Tensor light(torch::Tensor images, const Plans& plans) {
  const bool is_mixed =
      images.size(3) == 3 && any(plans, [](const SamplePlan& plan) {
        return !plan.lighting.is_table();
      });
  if (is_mixed) {
    images = to_bytes(mix_colors(images, plans));
    if (!any(plans, [](const SamplePlan& plan) {
          return !plan.lighting.tones.empty();
        })) {
      return images;
    }
    const torch::Tensor tones = tables_of(plans, [](const SamplePlan& plan) {
      return Lighting{.tones = plan.lighting.tones};
    });
    return look_up(images, tones.to(images.device()));
  }
  if (any(plans, [](const SamplePlan& plan) {
        return !plan.lighting.is_identity();
      })) {
    const torch::Tensor tables =
        tables_of(plans, [](const SamplePlan& plan) { return plan.lighting; });
    return look_up(images, tables.to(images.device()));
  }
  return images;
}

inline torch::Tensor render_with_tensors(
    const torch::Tensor& images,
    const Plans& plans) {
  if (plans.empty()) {
    return images;
  }
  const torch::Tensor grid =
      sampling_grid(plans, images.size(1), images.size(2), images.device());
  const torch::Tensor sampled = at::grid_sampler(
      images.permute({0, 3, 1, 2}).to(torch::kFloat),
      grid,
      /*interpolation_mode=*/0,
      grid_padding(plans[0].warp().padding),
      /*align_corners=*/false);
  torch::Tensor bytes = light(
      sampled.round()
          .clamp(0, 255)
          .to(torch::kByte)
          .permute({0, 2, 3, 1})
          .contiguous(),
      plans);
  const ImageSize size = {bytes.size(1), bytes.size(2)};
  for (size_t i = 0; i < plans.size(); ++i) {
    const torch::Tensor image = bytes[static_cast<int64_t>(i)];
    for (const PaintedRectangle& erasure : plans[i].erasures) {
      erase(erasure, {image.mutable_data_ptr<uint8_t>(), size, image.size(2)});
    }
  }
  return bytes;
}

}  // namespace tern::testing_support
