#include "tern/vision/models/detection/anchors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <torch/csrc/jit/frontend/tracer.h>

#include "tern/kernels/check.h"
#include "tern/kernels/dispatch.h"

namespace tern {

AnchorOptions AnchorOptions::retinanet(double smallest) {
  TERN_CHECK_VALUE(
      smallest >= 2 && std::isfinite(smallest),
      "[AnchorOptions::retinanet] the smallest anchor is {} pixels wide; "
      "expected at least 2, such as 32.",
      smallest);
  AnchorOptions options;
  for (const int scale : {1, 2, 4, 8, 16}) {
    const double side = scale * smallest;
    options.sizes.push_back(
        {side,
         std::floor(side * std::pow(2, 1.0 / 3)),
         std::floor(side * std::pow(2, 2.0 / 3))});
    options.aspect_ratios.push_back({0.5, 1, 2});
  }
  return options;
}

AnchorGeneratorImpl::AnchorGeneratorImpl(AnchorOptions options)
    : options_(std::move(options)) {
  const auto are_positive = [](const std::vector<std::vector<double>>& levels) {
    return std::ranges::all_of(levels, [](const std::vector<double>& level) {
      return !level.empty() && std::ranges::all_of(level, [](double x) {
        return x > 0 && std::isfinite(x);
      });
    });
  };
  const auto& [sizes, aspect_ratios] = options_;
  TERN_CHECK_VALUE(
      !sizes.empty() && sizes.size() == aspect_ratios.size() &&
          are_positive(sizes) && are_positive(aspect_ratios),
      "[AnchorGenerator] got sizes for {} levels and aspect_ratios for {}; "
      "expected the same number of levels, at least one, with positive "
      "numbers.",
      sizes.size(),
      aspect_ratios.size());
  reset();
}

void AnchorGeneratorImpl::reset() {
  cell_anchors_.clear();
  for (size_t i = 0; i < options_.sizes.size(); ++i) {
    const torch::Tensor sides = torch::tensor(options_.sizes[i], torch::kFloat);
    const torch::Tensor heights =
        torch::tensor(options_.aspect_ratios[i], torch::kFloat).sqrt();
    const torch::Tensor w = (1 / heights).outer(sides).flatten();
    const torch::Tensor h = heights.outer(sides).flatten();
    cell_anchors_.push_back((torch::stack({-w, -h, w, h}, 1) / 2).round());
  }
}

std::shared_ptr<torch::nn::Module> AnchorGeneratorImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = Cloneable::clone(device);
  copy->to(device.value_or(cell_anchors_[0].device()));
  return copy;
}

void AnchorGeneratorImpl::to(
    torch::Device device,
    torch::Dtype dtype,
    bool non_blocking) {
  Cloneable::to(device, dtype, non_blocking);
  for (torch::Tensor& anchors : cell_anchors_) anchors = anchors.to(device);
}

void AnchorGeneratorImpl::to(torch::Device device, bool non_blocking) {
  Cloneable::to(device, non_blocking);
  for (torch::Tensor& anchors : cell_anchors_) anchors = anchors.to(device);
}

std::vector<int64_t> AnchorGeneratorImpl::anchors_per_location() const {
  std::vector<int64_t> counts;
  for (const torch::Tensor& anchors : cell_anchors_) {
    counts.push_back(anchors.size(0));
  }
  return counts;
}

void AnchorGeneratorImpl::check(const Tensors& feature_maps) const {
  TERN_CHECK_VALUE(
      feature_maps.size() == cell_anchors_.size(),
      "[AnchorGenerator] got {} feature maps; expected {}, one per level. Give "
      "sizes and aspect_ratios for each of them.",
      feature_maps.size(),
      cell_anchors_.size());
  for (size_t i = 0; i < feature_maps.size(); ++i) {
    const torch::Tensor& map = feature_maps[i];
    TERN_CHECK_VALUE(
        map.dim() == 4 && map.size(2) > 0 && map.size(3) > 0,
        "[AnchorGenerator] feature map {} is {}; expected [N, C, H, W] that is "
        "not empty.",
        i,
        describe(map));
  }
}

torch::Tensor AnchorGeneratorImpl::forward(
    int64_t height,
    int64_t width,
    const Tensors& feature_maps) {
  check(feature_maps);
  Tensors anchors;
  for (size_t i = 0; i < feature_maps.size(); ++i) {
    const torch::Tensor& map = feature_maps[i];
    const auto centers = [&](int64_t positions, int64_t pixels) {
      return torch::arange(
                 positions,
                 torch::dtype(torch::kFloat).device(map.device())) *
             (pixels / positions);
    };
    const int64_t h = map.size(2), w = map.size(3);
    const torch::Tensor y =
        centers(h, height).unsqueeze(1).expand({h, w}).reshape({-1, 1});
    const torch::Tensor x =
        centers(w, width).unsqueeze(0).expand({h, w}).reshape({-1, 1});
    const torch::Tensor shifts = torch::cat({x, y, x, y}, 1);
    const torch::Tensor around = cell_anchors_[i].to(map.device());
    anchors.push_back(
        (shifts.unsqueeze(1) + around.unsqueeze(0)).reshape({-1, 4}));
  }
  return torch::cat(anchors);
}

namespace {

// A dimension of images or maps [N, C, H, W], computed by tensor operations so
// that a trace does not record it as a constant.
struct TracedDimension {
  TracedDimension(const torch::Tensor& x, int64_t dim) {
    const torch::Tensor line = x.select(0, 0).select(0, 0).select(3 - dim, 0);
    const torch::Tensor ones = torch::ones_like(line, torch::kFloat);
    places = ones.cumsum(0) - 1;
    size = ones.sum();
  }

  torch::Tensor places;  // 0, 1, 2 etc., [size]
  torch::Tensor size;    // []
};

// floor() of the quotient is exact, because both numbers are integers below
// 2^23.
torch::Tensor traced_centers(
    const torch::Tensor& images,
    const torch::Tensor& map,
    int64_t dim) {
  const TracedDimension positions(map, dim);
  const torch::Tensor pixels = TracedDimension(images, dim).size;
  return positions.places * (pixels / positions.size).floor();
}

}  // namespace

torch::Tensor AnchorGeneratorImpl::forward(
    const torch::Tensor& images,
    const Tensors& feature_maps) {
  if (!torch::jit::tracer::isTracing()) {
    return forward(images.size(2), images.size(3), feature_maps);
  }
  check(feature_maps);
  Tensors anchors;
  for (size_t i = 0; i < feature_maps.size(); ++i) {
    const torch::Tensor& map = feature_maps[i];
    const torch::Tensor y = traced_centers(images, map, 2).unsqueeze(1);
    const torch::Tensor x = traced_centers(images, map, 3).unsqueeze(0);
    // Broadcast to [H, W] without `expand`, whose size a trace would record as
    // a constant.
    const torch::Tensor row = y + 0 * x, column = x + 0 * y;
    const torch::Tensor shifts = torch::stack({column, row, column, row}, 2);
    const torch::Tensor around = cell_anchors_[i].type_as(shifts);
    anchors.push_back((shifts.unsqueeze(2) + around).reshape({-1, 4}));
  }
  return torch::cat(anchors);
}

namespace {

// Pads one dimension, 2 or 3, by tensor operations only: no size becomes a
// constant of the trace.
torch::Tensor
traced_padding(const torch::Tensor& images, int64_t dim, int64_t multiple) {
  const TracedDimension pixels(images, dim);
  // One per started block of `multiple` pixels: the maximum over each block of
  // ones that are followed by zeros.
  const torch::Tensor ones = torch::ones_like(pixels.places);
  const torch::Tensor blocks =
      torch::max_pool2d(
          torch::constant_pad_nd(ones.view({1, 1, 1, -1}), {0, multiple - 1}),
          {1, multiple},
          {1, multiple})
          .view({-1, 1});
  const torch::Tensor places =
      (blocks * torch::ones({1, multiple}, ones.options()))
          .flatten()
          .cumsum(0) -
      1;
  const torch::Tensor index = torch::minimum(places, pixels.size - 1);
  const torch::Tensor inside = places < pixels.size;
  return torch::where(
      dim == 2 ? inside.unsqueeze(1) : inside,
      images.index_select(dim, index.to(torch::kLong)),
      torch::zeros({}, images.options()));
}

}  // namespace

torch::Tensor pad_images(const torch::Tensor& images, int64_t multiple) {
  if (torch::jit::tracer::isTracing()) {
    return traced_padding(traced_padding(images, 2, multiple), 3, multiple);
  }
  const auto missing = [&](int64_t dim) {
    return (multiple - images.size(dim) % multiple) % multiple;
  };
  const int64_t below = missing(2), right = missing(3);
  if (below == 0 && right == 0) return images;
  return torch::constant_pad_nd(images, {0, right, 0, below});
}

torch::Tensor image_sizes(const torch::Tensor& images) {
  const int64_t batch = images.size(0);
  if (torch::jit::tracer::isTracing()) {
    return torch::stack({TracedDimension(images, 2).size,
                         TracedDimension(images, 3).size})
        .expand({batch, 2});
  }
  const auto column = [&](int64_t pixels) {
    return torch::full(
        {batch, 1},
        static_cast<double>(pixels),
        torch::dtype(torch::kFloat).device(images.device()));
  };
  return torch::cat({column(images.size(2)), column(images.size(3))}, 1);
}

}  // namespace tern
