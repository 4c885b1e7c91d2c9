#include "tern/vision/transforms/render_batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tern/kernels/parallel_for.h"
#include "tern/vision/sample_pixels.h"
#include "tern/vision/transforms/apply_lighting.h"

namespace tern {
namespace {

using Plans = std::vector<SamplePlan>;

/// A value of each plan as [N, 1, 1, 1] kFloat.
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

/// [N, H, W, 2] kFloat: where each pixel comes from.
torch::Tensor grid_of(
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
  if (any(plans, [](const SamplePlan& plan) {
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

torch::Tensor to_bytes(const torch::Tensor& values) {
  return values.mul(255).add(0.5).clamp(0, 255).floor().to(torch::kByte);
}

/// As `turn_hue` of apply_lighting.cpp, for [N, H, W, 3] in 0..1.
torch::Tensor with_hue(const torch::Tensor& rgb, const torch::Tensor& turn) {
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

/// Looks every value of [N, ...] kByte up in a table of its sample.
torch::Tensor look_up(
    const torch::Tensor& images,
    const torch::Tensor& tables) {
  const int64_t count = images.size(0);
  return tables.gather(1, images.reshape({count, -1}).to(torch::kLong))
      .view(images.sizes());
}

torch::Tensor tables_of(
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

/// Brightness, contrast, saturation and hue, for [N, H, W, 3] kByte.
torch::Tensor mix_colours(const torch::Tensor& images, const Plans& plans) {
  const torch::Device device = images.device();
  const auto number = [&](float Lighting::*field) {
    return column(plans, device, [field](const SamplePlan& plan) {
      return plan.lighting.*field;
    });
  };
  const torch::Tensor x =
      (images.to(torch::kFloat) / 255).clamp(1e-7, 1 - 1e-7);
  const torch::Tensor logit = torch::log(x / (1 - x));
  const torch::Tensor grey =
      (logit *
       torch::tensor({0.2989f, 0.5870f, 0.1140f}, torch::TensorOptions(device)))
          .sum(3, /*keepdim=*/true);
  const torch::Tensor keep = number(&Lighting::saturation);
  const torch::Tensor mixed =
      (logit * keep + grey * (1 - keep)) * number(&Lighting::scale) +
      number(&Lighting::shift);
  return with_hue(torch::sigmoid(mixed), number(&Lighting::hue));
}

torch::Tensor light(torch::Tensor images, const Plans& plans) {
  const bool is_mixed =
      images.size(3) == 3 && any(plans, [](const SamplePlan& plan) {
        return !plan.lighting.is_table();
      });
  if (is_mixed) {
    images = to_bytes(mix_colours(images, plans));
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

/// Within an image of that size.
PaintedRectangle rectangle_of(const Erasure& erasure, ImageSize size) {
  const auto within = [](int64_t place, int64_t limit) {
    return static_cast<int32_t>(std::clamp<int64_t>(place, 0, limit));
  };
  const ImageSize at = erasure.at, part = erasure.size;
  return {
      .top = within(at.height, size.height),
      .left = within(at.width, size.width),
      .bottom = within(at.height + part.height, size.height),
      .right = within(at.width + part.width, size.width),
      .noise_key = erasure.noise_key,
      .noise = erasure.noise,
      .value = erasure.value};
}

void erase_all(const torch::Tensor& images, const Plans& plans) {
  const ImageSize size = {images.size(1), images.size(2)};
  for (size_t i = 0; i < plans.size(); ++i) {
    for (const Erasure& erasure : plans[i].erasures) {
      const PaintedRectangle r = rectangle_of(erasure, size);
      const auto part_of = [&](const torch::Tensor& image) {
        return image.slice(0, r.top, r.bottom).slice(1, r.left, r.right);
      };
      torch::Tensor part = part_of(images[static_cast<int64_t>(i)]);
      if (part.numel() == 0) {
        continue;
      }
      if (!erasure.noise) {
        part.fill_(erasure.value);
        continue;
      }
      torch::Tensor noise =
          torch::zeros({size.height, size.width, images.size(3)}, torch::kByte);
      erase(erasure, {noise.mutable_data_ptr<uint8_t>(), size, images.size(3)});
      part.copy_(part_of(noise));
    }
  }
}

}  // namespace

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

std::vector<ImageChange>
changes_of(const Plans& plans, ImageSize size, int64_t channels) {
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
    for (const Erasure& erasure : plan.erasures) {
      change.rectangles.push_back(rectangle_of(erasure, size));
    }
    changes.push_back(std::move(change));
  }
  return changes;
}

torch::Tensor render_with_tensors(
    const torch::Tensor& images,
    const Plans& plans) {
  if (plans.empty()) {
    return images;
  }
  const torch::Tensor grid =
      grid_of(plans, images.size(1), images.size(2), images.device());
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
  erase_all(bytes, plans);
  return bytes;
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
             grid_of(plans, masks.size(1), masks.size(2), masks.device()),
             /*interpolation_mode=*/1,
             grid_padding(plans[0].warp().padding),
             /*align_corners=*/false)
      .squeeze(1)
      .round()
      .to(torch::kLong);
}

}  // namespace tern
