// Resizing and resampling of images.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// Common form of the overloads' arguments. Overloads with scale_factors call
// the images `input`; overloads with only an output_size call them `self`.
struct Resizing {
  const char* images;
  Integers from, to;           // of the spatial dimensions
  std::vector<double> scales;  // empty, or one each: PyTorch then computes
                               // positions with it, not with the size ratio
};

Resizing resizing_of(AtenNode& node) {
  Resizing resizing;
  resizing.images = node.has("input") ? "input" : "self";
  const Integers from = node.sizes(resizing.images), to = node.output_sizes();
  resizing.from.assign(from.begin() + 2, from.end());
  resizing.to.assign(to.begin() + 2, to.end());
  if (node.has("scale_factors")) {
    resizing.scales = node.constant("scale_factors").toDoubleVector();
  }
  for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (node.has(name)) resizing.scales.push_back(node.number(name));
  }
  if (resizing.scales.size() != resizing.to.size()) resizing.scales.clear();
  node.ignore({"output_size", "scale_factors"});  // equals the output's
  return resizing;
}

// ---- The nearest pixel ----

// Returns the pixel that PyTorch uses for each of `to`. Computed by PyTorch
// itself, because it rounds positions in fp32.
torch::Tensor nearest_places(
    int64_t from,
    int64_t to,
    std::optional<double> scale,
    bool is_exact) {
  const torch::Tensor line =
      torch::arange(from, torch::kFloat).view({1, 1, -1, 1});
  const Integers size = {to, 1};
  const torch::Tensor places =
      is_exact ? torch::_upsample_nearest_exact2d(line, size, scale, 1.0)
               : torch::upsample_nearest2d(line, size, scale, 1.0);
  return places.flatten().to(torch::kLong);
}

// The same in the graph, for sizes that are known only at run time. `size` is
// the size of the result; null if a scale determines it.
Term gather_nearest(
    const Term& x,
    int64_t axis,
    Value* size,
    std::optional<double> scale,
    bool is_exact) {
  OnnxGraph& graph = x.graph();
  const Term from(graph, graph.sizes_at(x.value(), {axis}), torch::kLong);
  const Term to = scale ? (from.to(torch::kDouble) * *scale).to(torch::kLong)
                        : Term(graph, size, torch::kLong);
  const Term zero(graph, graph.scalar(0, torch::kLong), torch::kLong);
  const Term count = zero.op("Range", {term::squeeze(to, 0), zero.number(1)})
                         .to(torch::kFloat);
  const Term ratio = scale ? count.number(1 / *scale)
                           : from.to(torch::kFloat) / to.to(torch::kFloat);
  const Term place = (is_exact ? count + 0.5 : count) * ratio;
  const Term places = term::min(place.op("Floor").to(torch::kLong), from - 1);
  return x.op_with("Gather", {places.value()}, {{"axis", axis}});
}

bool is_repeated(const torch::Tensor& places, int64_t from) {
  const int64_t times = places.numel() / std::max<int64_t>(from, 1);
  return torch::equal(places, torch::arange(from).repeat_interleave(times));
}

// Repeats pixels; `times` has a number for all four or five dimensions.
Term repeated(const Term& x, const std::vector<float>& times) {
  return x.op_with(
      "Resize",
      {nullptr, x.graph().constant(torch::tensor(times))},
      {{"nearest_mode", "floor"},
       {"coordinate_transformation_mode", "asymmetric"}});
}

// True if PyTorch repeats each pixel for a given scale, in images of any size.
// For a few integer scales, such as 41, rounding makes it use other pixels.
bool repeats_pixels(const Resizing& how, bool is_exact) {
  constexpr int64_t kLargeImage = 4'096;
  return !how.scales.empty() && std::ranges::all_of(how.scales, [&](double x) {
    if (x < 1 || x != std::floor(x)) return false;
    const int64_t to = kLargeImage * static_cast<int64_t>(x);
    return is_repeated(
        nearest_places(kLargeImage, to, x, is_exact),
        kLargeImage);
  });
}

// For many sizes Resize uses different pixels from PyTorch, unless each pixel
// is repeated an integer number of times.
Operator upsample_nearest(bool is_exact) {
  return [is_exact](AtenNode& node, OnnxGraph& graph) -> Values {
    const Resizing how = resizing_of(node);
    Term x = node.term(how.images);
    const int64_t rank = std::ssize(how.to);
    const auto scale = [&](int64_t i) {
      return how.scales.empty() ? std::optional<double>() : how.scales[i];
    };
    Integers numbers = how.from;
    numbers.insert(numbers.end(), how.to.begin(), how.to.end());
    Values sizes(rank);
    for (int64_t i = 0; how.scales.empty() && i < rank; ++i) {
      sizes[i] = graph.integers({how.to[i]});
    }
    if (graph.differ(numbers)) {
      if (x.is_float() && repeats_pixels(how, is_exact)) {
        std::vector<float> times(2, 1);
        times.insert(times.end(), how.scales.begin(), how.scales.end());
        return repeated(x, times);
      }
      for (int64_t i = 0; i < rank; ++i) {
        x = gather_nearest(x, i + 2, sizes[i], scale(i), is_exact);
      }
      return x;
    }
    std::vector<torch::Tensor> places;
    std::vector<float> times(2, 1);
    bool is_whole = x.is_float();
    for (int64_t i = 0; i < rank; ++i) {
      places.push_back(
          nearest_places(how.from[i], how.to[i], scale(i), is_exact));
      is_whole &= is_repeated(places[i], how.from[i]);
      times.push_back(static_cast<float>(how.to[i] / how.from[i]));
    }
    if (is_whole) return repeated(x, times);
    for (int64_t i = 0; i < rank; ++i) {
      if (how.from[i] == how.to[i] &&
          torch::equal(places[i], torch::arange(how.to[i]))) {
        continue;
      }
      x = term::gather(x, places[i], i + 2);
    }
    return x;
  };
}

// ---- Between pixels ----

// Returns a scale in fp32 with which ONNX Runtime, which rounds down, gets the
// right size.
float scale_for(double scale, int64_t from, int64_t to) {
  float rounded = static_cast<float>(scale);
  const auto size = [&] {
    return static_cast<int64_t>(rounded * static_cast<float>(from));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  while (size() < to) rounded = std::nextafter(rounded, kInfinity);
  while (size() > to) rounded = std::nextafter(rounded, -kInfinity);
  return rounded;
}

// Without align_corners, both place pixel centers at half-integers, ONNX's
// default "half_pixel". Resize has a region of interest, scales and sizes as
// optional inputs; if scales are given, it computes positions with them.
Operator upsample_between(const char* mode) {
  return [mode](AtenNode& node, OnnxGraph& graph) -> Values {
    const Resizing how = resizing_of(node);
    const Term x = node.term(how.images);
    if (!x.is_float()) {
      refuse(fmt::format(
          "its {} is {}; expected floating-point numbers. Write "
          ".to(torch::kFloat) before",
          how.images,
          torch::toString(x.type())));
    }
    Attributes attributes = {{"mode", mode}};
    const bool aligns = node.flag("align_corners");
    if (aligns) {
      attributes.emplace_back(
          "coordinate_transformation_mode",
          "align_corners");
    }
    // PyTorch uses the same value, which is ONNX's default.
    if (std::string(mode) == "cubic") {
      attributes.emplace_back("cubic_coeff_a", -0.75);
    }
    if (how.scales.empty() || aligns) {
      const Integers all = node.output_sizes();
      return x.op_with(
          "Resize",
          {nullptr, nullptr, graph.integers(all)},
          attributes);
    }
    // Readers of ONNX differ if a scale does not change the size.
    const bool keeps_size = how.from == how.to;
    graph.check_path(keeps_size ? "copied" : "resized");
    if (keeps_size && std::string(mode) == "cubic") {
      refuse(
          "its scale moves pixels but does not change the size; expected a "
          "different size. Write upsample_bicubic2d with a size");
    }
    if (keeps_size) return x;  // PyTorch copies
    std::vector<float> scales(2, 1);
    for (size_t i = 0; i < how.to.size(); ++i) {
      scales.push_back(scale_for(how.scales[i], how.from[i], how.to[i]));
    }
    return x.op_with(
        "Resize",
        {nullptr, graph.constant(torch::tensor(scales))},
        attributes);
  };
}

// ---- At positions that the model computes ----

Values grid_sampler(AtenNode& node, OnnxGraph&) {
  if (node.rank("input") != 4) {
    refuse(
        "its input is not [N, C, H, W]; expected 4 dimensions, since ONNX has "
        "no others before opset 20. Sample slices of it");
  }
  constexpr const char* kModes[] = {"bilinear", "nearest", "bicubic"};
  constexpr const char* kPaddings[] = {"zeros", "border", "reflection"};
  const Term x = node.term("input");
  return x.op(
      "GridSample",
      {node.term("grid")},
      {{"mode", kModes[node.integer("interpolation_mode")]},
       {"padding_mode", kPaddings[node.integer("padding_mode")]},
       {"align_corners", node.flag("align_corners")}});
}

}  // namespace

OperatorTable resizing() {
  return {
      {"aten::_upsample_nearest_exact1d", upsample_nearest(/*is_exact=*/true)},
      {"aten::_upsample_nearest_exact2d", upsample_nearest(/*is_exact=*/true)},
      {"aten::_upsample_nearest_exact3d", upsample_nearest(/*is_exact=*/true)},
      {"aten::grid_sampler", grid_sampler},
      {"aten::upsample_bicubic2d", upsample_between("cubic")},
      {"aten::upsample_bilinear2d", upsample_between("linear")},
      {"aten::upsample_linear1d", upsample_between("linear")},
      {"aten::upsample_nearest1d", upsample_nearest(/*is_exact=*/false)},
      {"aten::upsample_nearest2d", upsample_nearest(/*is_exact=*/false)},
      {"aten::upsample_nearest3d", upsample_nearest(/*is_exact=*/false)},
      {"aten::upsample_trilinear3d", upsample_between("linear")},
  };
}

}  // namespace tern::onnx
