// Convolutions, pooling, and operators that resize images.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

// ---- Windows ----

// Windows over the spatial dimensions, which follow N and C. `pads` has the
// beginnings of all dimensions, then the ends.
struct Windows {
  Integers kernel, strides, dilations, pads;

  int64_t rank() const { return std::ssize(kernel); }
  int64_t pad_begin(int64_t i) const { return pads[i]; }
  int64_t pad_end(int64_t i) const { return pads[rank() + i]; }
  int64_t extent(int64_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

Windows windows_of(const Operation& op, Integers kernel) {
  const int64_t rank = op.input().dim() - 2;
  TERN_CHECK_VALUE(
      std::ssize(kernel) == rank && rank > 0,
      "its kernel has {} dimensions and its input {}; expected two more "
      "dimensions in the input",
      kernel.size(),
      rank + 2);
  TERN_CHECK_VALUE(
      op.text("auto_pad", "NOTSET") == "NOTSET",
      "its auto_pad is {}; expected NOTSET",
      op.text("auto_pad", "NOTSET"));
  const auto list = [&](const char* name, int64_t count, int64_t usual) {
    Integers numbers = op.list(name);
    if (numbers.empty()) numbers.assign(count, usual);
    TERN_CHECK_VALUE(
        std::ssize(numbers) == count,
        "it has {} {}; expected {}",
        numbers.size(),
        name,
        count);
    return numbers;
  };
  return {
      std::move(kernel),
      list("strides", rank, 1),
      list("dilations", rank, 1),
      list("pads", 2 * rank, 0)};
}

// Pads the spatial dimensions, and adds `more` at their ends.
Tensor padded(
    const Tensor& x,
    const Windows& windows,
    double number,
    const Integers& more = {}) {
  Integers backwards;
  for (int64_t i = windows.rank(); i-- > 0;) {
    backwards.push_back(windows.pad_begin(i));
    backwards.push_back(windows.pad_end(i) + (more.empty() ? 0 : more[i]));
  }
  return torch::constant_pad_nd(x, backwards, number);
}

// ---- Convolutions ----

Integers tail(const Tensor& weight) {
  return {weight.sizes().begin() + 2, weight.sizes().end()};
}

void require_kernel_shape(const Operation& op) {
  const Integers kernel = op.list("kernel_shape");
  TERN_CHECK_VALUE(
      kernel.empty() || kernel == tail(op.input(1)),
      "its kernel_shape differs from the shape of its weight");
}

std::vector<Tensor> conv(const Operation& op) {
  op.require_one_type();
  require_kernel_shape(op);
  const Tensor &x = op.floats(0), &weight = op.floats(1);
  const Windows windows = windows_of(op, tail(weight));
  const int64_t rank = windows.rank();
  const std::optional<Tensor> bias =
      op.has(2) ? std::optional(op.floats(2)) : std::nullopt;
  const bool is_even = std::equal(
      windows.pads.begin(),
      windows.pads.begin() + rank,
      windows.pads.begin() + rank);
  const Integers padding(windows.pads.begin(), windows.pads.begin() + rank);
  return {torch::convolution(
      is_even ? x : padded(x, windows, 0),
      weight,
      bias,
      windows.strides,
      is_even ? padding : Integers(rank, 0),
      windows.dilations,
      /*transposed=*/false,
      /*output_padding=*/Integers(rank, 0),
      op.integer("group", 1))};
}

// Computed without padding, which is then cut off.
std::vector<Tensor> conv_transpose(const Operation& op) {
  op.require_one_type();
  require_kernel_shape(op);
  TERN_CHECK_VALUE(
      op.list("output_shape").empty(),
      "it has an output_shape; expected pads");
  const Windows windows = windows_of(op, tail(op.floats(1)));
  const int64_t rank = windows.rank();
  Integers output_padding = op.list("output_padding");
  if (output_padding.empty()) output_padding.assign(rank, 0);
  const std::optional<Tensor> bias =
      op.has(2) ? std::optional(op.floats(2)) : std::nullopt;
  Tensor y = torch::convolution(
      op.floats(0),
      op.floats(1),
      bias,
      windows.strides,
      Integers(rank, 0),
      windows.dilations,
      /*transposed=*/true,
      output_padding,
      op.integer("group", 1));
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t begin = windows.pad_begin(i), end = windows.pad_end(i);
    y = y.narrow(2 + i, begin, y.size(2 + i) - begin - end);
  }
  return {y};
}

// ---- Pooling ----

// Returns [N, C, windows..., kernel...], a view of the padded images. With
// ceil_mode the last window may extend beyond the padding.
Tensor pooled_windows(
    const Tensor& x,
    const Windows& windows,
    bool is_ceil,
    double padding) {
  Integers more;
  for (int64_t i = 0; i < windows.rank(); ++i) {
    const int64_t begin = windows.pad_begin(i), stride = windows.strides[i];
    const int64_t size = x.size(2 + i);
    TERN_CHECK_VALUE(
        std::max(begin, windows.pad_end(i)) < windows.kernel[i],
        "its padding is {} and {} for a kernel of {}; expected less padding, "
        "as ONNX Runtime requires",
        begin,
        windows.pad_end(i),
        windows.kernel[i]);
    const int64_t room = begin + size + windows.pad_end(i) - windows.extent(i);
    TERN_CHECK_VALUE(room >= 0, "its kernel is larger than its input");
    const int64_t steps =
        is_ceil ? (room + stride - 1) / stride : room / stride;
    // Opset 17 includes such a window; runtimes and PyTorch do not.
    TERN_CHECK_VALUE(
        !is_ceil || steps * stride < begin + size,
        "its ceil_mode creates a window that starts beyond its input; expected "
        "windows that start inside it");
    more.push_back(std::max<int64_t>(steps * stride - room, 0));
  }
  Tensor y = padded(x, windows, padding, more);
  for (int64_t i = 0; i < windows.rank(); ++i) {
    y = y.unfold(2 + i, windows.extent(i), windows.strides[i]);
    y = y.slice(-1, 0, std::nullopt, windows.dilations[i]);
  }
  return y;
}

Integers last_dimensions(int64_t count) {
  Integers dimensions(count);
  std::iota(dimensions.begin(), dimensions.end(), -count);
  return dimensions;
}

std::vector<Tensor> max_pool(const Operation& op) {
  TERN_CHECK_VALUE(
      op.output_count() == 1,
      "it returns the indices of the maxima; expected only the maxima");
  const Windows windows = windows_of(op, op.list("kernel_shape"));
  const Tensor y = pooled_windows(
      op.floats(),
      windows,
      op.integer("ceil_mode", 0) == 1,
      -std::numeric_limits<double>::infinity());
  return {y.amax(last_dimensions(windows.rank()))};
}

// With count_include_pad, divides by the size of the kernel, also where a
// window of ceil_mode extends beyond the padding; otherwise by the number of
// elements inside the image.
std::vector<Tensor> average_pool(const Operation& op) {
  const Windows windows = windows_of(op, op.list("kernel_shape"));
  const Integers axes = last_dimensions(windows.rank());
  const bool is_ceil = op.integer("ceil_mode", 0) == 1;
  const Tensor& x = op.floats();
  const Tensor y = pooled_windows(x, windows, is_ceil, 0);
  if (op.integer("count_include_pad", 0) == 1) return {y.mean(axes)};
  const Tensor one = torch::ones_like(x.slice(0, 0, 1).slice(1, 0, 1));
  const Tensor counts = pooled_windows(one, windows, is_ceil, 0).sum(axes);
  return {y.sum(axes) / counts};
}

template <typename Function>
Compute global_pool(Function function) {
  return [function](const Operation& op) -> std::vector<Tensor> {
    const Tensor& x = op.floats();
    return {function(x, last_dimensions(x.dim() - 2))};
  };
}

// ---- Resize ----

// Returns the position in a dimension of `size` that a position of the result
// is computed from.
float place_before(
    const std::string& mode,
    int64_t place,
    float scale,
    int64_t size,
    int64_t new_size) {
  const auto x = static_cast<float>(place);
  if (mode == "half_pixel") return (x + 0.5f) / scale - 0.5f;
  if (mode == "pytorch_half_pixel") {
    return new_size > 1 ? (x + 0.5f) / scale - 0.5f : 0.f;
  }
  if (mode == "asymmetric") return x / scale;
  TERN_CHECK_VALUE(
      mode == "align_corners",
      "its coordinate_transformation_mode is {}; expected half_pixel, "
      "pytorch_half_pixel, asymmetric or align_corners",
      mode);
  return new_size == 1 ? 0.f
                       : x * static_cast<float>(size - 1) /
                             static_cast<float>(new_size - 1);
}

int64_t nearest(const std::string& mode, float place) {
  const float half = place - std::floor(place);
  const auto lower = static_cast<int64_t>(std::floor(place));
  if (mode == "floor") return lower;
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(place));
  if (mode == "round_prefer_floor") return half > 0.5f ? lower + 1 : lower;
  TERN_CHECK_VALUE(
      mode == "round_prefer_ceil",
      "its nearest_mode is {}; expected floor, ceil, round_prefer_floor or "
      "round_prefer_ceil",
      mode);
  return half < 0.5f ? lower : lower + 1;
}

// Keys, "Cubic Convolution Interpolation for Digital Image Processing".
double cubic_weight(double distance, double a) {
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

// The elements of a dimension that contribute to each element of the result,
// and their weights: one, two or four tensors of the result's size.
struct Taps {
  std::vector<Tensor> places, weights;
};

Taps taps_of_resize(
    const Operation& op,
    float scale,
    int64_t size,
    int64_t new_size) {
  const std::string mode = op.text("mode", "nearest");
  const std::string from =
      op.text("coordinate_transformation_mode", "half_pixel");
  const std::string rounding = op.text("nearest_mode", "round_prefer_floor");
  const double a = op.number("cubic_coeff_a", -0.75);
  TERN_CHECK_VALUE(
      mode == "nearest" || mode == "linear" || mode == "cubic",
      "its mode is {}; expected nearest, linear or cubic",
      mode);
  TERN_CHECK_VALUE(
      op.integer("exclude_outside", 0) == 0,
      "its exclude_outside is 1; expected 0");
  const int64_t count = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  const Tensor places = torch::zeros({count, new_size}, torch::kLong);
  const Tensor weights = torch::zeros({count, new_size}, torch::kDouble);
  auto place_at = places.accessor<int64_t, 2>();
  auto weight_at = weights.accessor<double, 2>();
  for (int64_t i = 0; i < new_size; ++i) {
    const float place = place_before(from, i, scale, size, new_size);
    // Beyond the ends, the first and last elements repeat.
    const auto set = [&](int64_t k, int64_t neighbor, double weight) {
      place_at[k][i] = std::clamp<int64_t>(neighbor, 0, size - 1);
      weight_at[k][i] = weight;
    };
    const auto lower = static_cast<int64_t>(std::floor(place));
    const double part = place - static_cast<double>(lower);
    if (mode == "nearest") set(0, nearest(rounding, place), 1);
    if (mode == "linear") {
      set(0, lower, 1 - part);
      set(1, lower + 1, part);
    }
    for (int64_t k = 0; k < 4 && mode == "cubic"; ++k) {
      set(k, lower + k - 1, cubic_weight(part - static_cast<double>(k - 1), a));
    }
  }
  return {places.unbind(), weights.unbind()};
}

Tensor resized_along(const Tensor& x, int64_t dimension, const Taps& taps) {
  if (taps.places.size() == 1) {
    return x.index_select(dimension, taps.places[0]);
  }
  Integers shape(x.dim(), 1);
  shape[dimension] = -1;
  Tensor sum;
  for (size_t k = 0; k < taps.places.size(); ++k) {
    const Tensor part = x.index_select(dimension, taps.places[k]) *
                        taps.weights[k].to(x.scalar_type()).view(shape);
    sum = k == 0 ? part : sum + part;
  }
  return sum;
}

std::vector<Tensor> resize(const Operation& op) {
  Tensor x = op.numbers();
  const int64_t rank = x.dim();
  TERN_CHECK_VALUE(
      op.has(2) != op.has(3),
      "it has scales and sizes, or neither; expected one of them");
  Tensor scales;
  if (op.has(2)) scales = op.floats(2).to(torch::kFloat);
  const Integers sizes = op.has(3) ? op.integers(3) : Integers(rank, 0);
  TERN_CHECK_VALUE(
      (op.has(2) ? scales.numel() : std::ssize(sizes)) == rank,
      "the number of its scales or sizes does not match its {}",
      rank);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t size = x.size(i);
    const float scale =
        op.has(2) ? scales[i].item<float>()
                  : static_cast<float>(sizes[i]) / static_cast<float>(size);
    const int64_t new_size =
        op.has(2)
            ? static_cast<int64_t>(std::floor(static_cast<float>(size) * scale))
            : sizes[i];
    if (new_size == size && scale == 1.f) continue;
    x = resized_along(x, i, taps_of_resize(op, scale, size, new_size));
  }
  return {x};
}

// ---- Channels ----

std::vector<Tensor> depth_to_space(const Operation& op) {
  const Tensor& x = op.input();
  const int64_t b = op.integer("blocksize", 0);
  const std::string mode = op.text("mode", "DCR");
  const int64_t n = x.size(0), c = x.size(1) / (b * b), h = x.size(2),
                w = x.size(3);
  const Tensor y =
      mode == "CRD" ? x.reshape({n, c, b, b, h, w}).permute({0, 1, 4, 2, 5, 3})
                    : x.reshape({n, b, b, c, h, w}).permute({0, 3, 4, 1, 5, 2});
  return {y.reshape({n, c, h * b, w * b})};
}

std::vector<Tensor> space_to_depth(const Operation& op) {
  const Tensor& x = op.input();
  const int64_t b = op.integer("blocksize", 0);
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2) / b,
                w = x.size(3) / b;
  return {x.reshape({n, c, h, b, w, b})
              .permute({0, 3, 5, 1, 2, 4})
              .reshape({n, c * b * b, h, w})};
}

// The specification's grid is the same as PyTorch's.
std::vector<Tensor> grid_sample(const Operation& op) {
  const std::string mode = op.text("mode", "bilinear");
  const std::string padding = op.text("padding_mode", "zeros");
  const int64_t mode_number = mode == "bilinear"  ? 0
                              : mode == "nearest" ? 1
                                                  : 2;
  const int64_t padding_number = padding == "zeros"    ? 0
                                 : padding == "border" ? 1
                                                       : 2;
  return {torch::grid_sampler(
      op.floats(0),
      op.floats(1),
      mode_number,
      padding_number,
      op.integer("align_corners", 0) == 1)};
}

}  // namespace

void add_images(ComputeTable& table) {
  using X = const Tensor&;
  using Axes = const Integers&;
  table["Conv"] = conv;
  table["ConvTranspose"] = conv_transpose;
  table["MaxPool"] = max_pool;
  table["AveragePool"] = average_pool;
  table["GlobalAveragePool"] =
      global_pool([](X x, Axes axes) { return x.mean(axes, true); });
  table["GlobalMaxPool"] =
      global_pool([](X x, Axes axes) { return x.amax(axes, true); });
  table["Resize"] = resize;
  table["DepthToSpace"] = depth_to_space;
  table["SpaceToDepth"] = space_to_depth;
  table["GridSample"] = grid_sample;
}

}  // namespace tern::onnx
