#include "tern/callbacks/cutmix.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace tern {

namespace {

struct Range {
  int64_t begin, end;
};

// `length` around a random centre, as far as it lies in 0..size.
Range draw_range(int64_t size, double length, SampleRng& rng) {
  const auto half = std::llround(static_cast<double>(size) * length) / 2;
  const auto centre = std::llround(rng.uniform() * static_cast<double>(size));
  return {
      std::max<int64_t>(centre - half, 0),
      std::min<int64_t>(centre + half, size)};
}

}  // namespace

torch::Tensor
CutMix::mix(Tensors& inputs, const torch::Tensor& partners, SampleRng& rng) {
  torch::Tensor& images = inputs[0];
  TORCH_CHECK_VALUE(
      images.is_floating_point() && images.dim() >= 3,
      fmt::format(
          "[CutMix] the first input is [{}] {}; expected floating images [N, "
          "..., H, W].",
          fmt::join(images.sizes(), ", "),
          c10::toString(images.scalar_type())));
  const int64_t height = images.size(-2), width = images.size(-1);
  const double side = std::sqrt(1 - draw_beta(rng));
  const Range x = draw_range(width, side, rng);
  const Range y = draw_range(height, side, rng);
  const auto box = [&](const torch::Tensor& tensor) {
    return tensor.slice(-2, y.begin, y.end).slice(-1, x.begin, x.end);
  };
  // A copy: on a CPU the batch may be the loader's own memory.
  torch::Tensor mixed = images.clone();
  box(mixed).copy_(box(images).index_select(0, partners));
  images = mixed;
  const auto area = static_cast<double>((x.end - x.begin) * (y.end - y.begin));
  const double kept = 1 - area / static_cast<double>(width * height);
  return torch::full(
      {partners.size(0)},
      kept,
      torch::dtype(torch::kFloat).device(partners.device()));
}

}  // namespace tern
