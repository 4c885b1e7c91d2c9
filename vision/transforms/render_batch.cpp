#include "tern/vision/transforms/render_batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tern/kernels/parallel_for.h"
#include "tern/vision/decode/sample_pixels.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

using Plans = std::vector<SamplePlan>;

Matrix3 in_grid_units(const Matrix3& matrix, double height, double width) {
  const Matrix3 pixels = {
      {width / 2, 0, width / 2, 0, height / 2, height / 2, 0, 0, 1}};
  const Matrix3 units = {{2 / width, 0, -1, 0, 2 / height, -1, 0, 0, 1}};
  return units * matrix * pixels;
}

int64_t grid_padding(Padding padding) {
  switch (padding) {
    case Padding::zeros:
      return 0;
    case Padding::border:
      return 1;
    case Padding::reflection:
      return 2;
  }
  return 0;
}

torch::Tensor sampling_grid(
    const Plans& plans,
    int64_t height,
    int64_t width,
    torch::Device device) {
  const auto count = static_cast<int64_t>(plans.size());
  torch::Tensor matrices = torch::empty({count, 3, 3});
  float* values = matrices.mutable_data_ptr<float>();
  for (const SamplePlan& plan : plans) {
    const Matrix3 matrix = in_grid_units(
        plan.warp().matrix,
        static_cast<double>(height),
        static_cast<double>(width));
    values = std::copy(matrix.values.begin(), matrix.values.end(), values);
  }
  const auto centres = [&](int64_t size) {
    return (torch::arange(
                size,
                torch::TensorOptions(device).dtype(torch::kFloat)) *
                2 +
            1) /
               size -
           1;
  };
  const torch::Tensor x = centres(width).expand({height, width});
  const torch::Tensor y = centres(height).view({-1, 1}).expand({height, width});
  const torch::Tensor points =
      torch::stack({x, y, torch::ones_like(x)}, -1).view({1, -1, 3});
  const torch::Tensor mapped =
      torch::matmul(points, matrices.to(device).transpose(1, 2));
  torch::Tensor grid = (mapped.slice(2, 0, 2) / mapped.slice(2, 2, 3))
                           .view({count, height, width, 2});
  if (std::any_of(plans.begin(), plans.end(), [](const SamplePlan& plan) {
        return plan.warp().jitter_x != 0 || plan.warp().jitter_y != 0;
      })) {
    torch::Tensor shifts = torch::zeros({count, height, width, 2});
    float* shift = shifts.mutable_data_ptr<float>();
    for (const SamplePlan& plan : plans) {
      const Warp warp = plan.warp();
      for (int64_t row = 0; row < height; ++row) {
        for (int64_t at = 0; at < width; ++at, shift += 2) {
          const auto [across, down] = warp_jitter(warp.jitter_key, row, at);
          shift[0] = across * warp.jitter_x * 2 / static_cast<float>(width);
          shift[1] = down * warp.jitter_y * 2 / static_cast<float>(height);
        }
      }
    }
    grid = grid + shifts.to(device);
  }
  return grid;
}

std::vector<ImageChange> changes_of(const Plans& plans, int64_t channels) {
  std::vector<ImageChange> changes;
  for (const SamplePlan& plan : plans) {
    TORCH_CHECK_VALUE(
        plan.pixel_functions.empty(),
        "[augment_batch] a transform changes pixels by a function, which runs "
        "on a CPU alone. Give it to the loader instead, as `transforms`.");
    const Lighting& lighting = plan.lighting;
    ImageChange change{.warp = plan.warp()};
    change.mixes_colours = channels == 3 && !lighting.is_table();
    if (change.mixes_colours) {
      change.scale = lighting.scale;
      change.shift = lighting.shift;
      change.saturation = lighting.saturation;
      change.hue = lighting.hue;
      change.table = Lighting{.tones = lighting.tones}.table();
    } else {
      change.table = lighting.table();
    }
    change.rectangles = plan.erasures;
    changes.push_back(std::move(change));
  }
  return changes;
}

torch::Tensor render_on_cpu(const torch::Tensor& images, const Plans& plans) {
  const torch::Tensor source = images.contiguous();
  torch::Tensor rendered = torch::empty_like(source);
  const ImageSize size = {source.size(1), source.size(2)};
  const int64_t channels = source.size(3);
  const int64_t bytes = size.height * size.width * channels;
  const uint8_t* from = source.const_data_ptr<uint8_t>();
  uint8_t* to = rendered.mutable_data_ptr<uint8_t>();
  const auto count = static_cast<int64_t>(plans.size());
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SamplePlan& plan = plans[static_cast<size_t>(i)];
      sample_pixels(
          {.pixels = from + i * bytes,
           .height = size.height,
           .width = size.width,
           .channels = channels,
           .stride = size.width * channels,
           .end = from + count * bytes},
          plan.warp(),
          size,
          to + i * bytes);
      plan.finish_pixels({to + i * bytes, size, channels});
    }
  });
  return rendered;
}

torch::Tensor render_masks(const torch::Tensor& masks, const Plans& plans) {
  if (plans.empty()) {
    return masks;
  }
  // Numbers up to 2^24 are exact in float.
  return at::grid_sampler(
             masks.unsqueeze(1).to(torch::kFloat),
             sampling_grid(plans, masks.size(1), masks.size(2), masks.device()),
             /*interpolation_mode=*/1,
             grid_padding(plans[0].warp().padding),
             /*align_corners=*/false)
      .squeeze(1)
      .round()
      .to(torch::kLong);
}

}  // namespace tern
