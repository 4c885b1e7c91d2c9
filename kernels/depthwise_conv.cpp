#include "tern/kernels/depthwise_conv.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/float_lanes.h"
#include "tern/kernels/fma_loop.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

constexpr int64_t kDepthwiseWork = int64_t{1} << 16;  // of a thread, at least

/// Some rows of one image of the result, of some channels.
struct Rows {
  const float* image;   // [height, width, channels]
  const float* weight;  // [1 + kernel_height * kernel_width, channels]
  float* result;        // [out_height, out_width, channels]
  int64_t channels, height, width, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_y, stride_x, padding_y, padding_x;
  int64_t first, last;  // rows
  int64_t first_channel, last_channel;
  const ConvActivation* activation;
};

/// Where some pixels of the result begin.
struct Place {
  int64_t y, x, channel;
};

/// Computes `kCount` pixels of a row, for `kVectors` times 16 channels.
/// \tparam kWidth  The kernel's width, if the image has all columns that the
///                 kernel sees; otherwise 0, and `kCount` must be 1.
template <int kCount, int kVectors, int kWidth>
TERN_CPU_LOOP void compute_vectors(const Rows& rows, const Place& place) {
  const int64_t top = place.y * rows.stride_y - rows.padding_y;
  const int64_t left = place.x * rows.stride_x - rows.padding_x;
  const int64_t first_y = std::max<int64_t>(-top, 0);
  const int64_t last_y = std::min(rows.kernel_height, rows.height - top);
  const int64_t first_x = kWidth > 0 ? 0 : std::max<int64_t>(-left, 0);
  const int64_t last_x =
      kWidth > 0 ? kWidth : std::min(rows.kernel_width, rows.width - left);
  const int64_t channels = rows.channels;
  const int64_t step = rows.stride_x * channels;
  const float* const weight = rows.weight + place.channel;
  const float* const image =
      rows.image + (top * rows.width + left) * channels + place.channel;
  Floats sums[kCount][kVectors], factors[kVectors], pixel;
  for (int v = 0; v < kVectors; ++v) {
    load_floats(weight + v * kLanes, factors[v]);
    for (int i = 0; i < kCount; ++i) sums[i][v] = factors[v];
  }
  for (int64_t ky = first_y; ky < last_y; ++ky) {
    const float* const line = image + ky * rows.width * channels;
    const float* const row = weight + (1 + ky * rows.kernel_width) * channels;
    for (int64_t kx = first_x; kx < last_x; ++kx) {
      for (int v = 0; v < kVectors; ++v) {
        load_floats(row + kx * channels + v * kLanes, factors[v]);
      }
      for (int i = 0; i < kCount; ++i) {
        for (int v = 0; v < kVectors; ++v) {
          load_floats(line + kx * channels + i * step + v * kLanes, pixel);
          sums[i][v] += pixel * factors[v];
        }
      }
    }
  }
  constexpr int64_t kPixelSize = kVectors * kLanes;
  alignas(64) float values[kCount * kPixelSize];
  __builtin_memcpy(values, sums, sizeof values);
  activate(*rows.activation, values, kCount * kPixelSize);
  float* const result = rows.result +
                        (place.y * rows.out_width + place.x) * channels +
                        place.channel;
  for (int i = 0; i < kCount; ++i) {
    __builtin_memcpy(
        result + i * channels,
        values + i * kPixelSize,
        kVectors * sizeof(Floats));
  }
}

/// Computes `kCount` pixels of a row from column `x`, for a range of channels.
template <int kCount, int kVectors, int kWidth>
TERN_CPU_LOOP void compute_pixels(
    const Rows& rows,
    int64_t y,
    int64_t x,
    int64_t first_channel,
    int64_t last_channel) {
  int64_t c = first_channel;
  for (; c + kVectors * kLanes <= last_channel; c += kVectors * kLanes) {
    compute_vectors<kCount, kVectors, kWidth>(rows, {y, x, c});
  }
  for (; c < last_channel; c += kLanes) {
    // The last channels are computed twice if they do not fill a vector.
    const int64_t channel = std::min(c, rows.channels - kLanes);
    compute_vectors<kCount, 1, kWidth>(rows, {y, x, channel});
  }
}

/// Returns how many channels of all columns are computed before the others, so
/// that as many rows as the kernel is high stay in the first cache.
int64_t channels_at_once(const Rows& rows) {
  constexpr int64_t kCached = 24 << 10;  // bytes
  // With fewer, reading pieces of rows would take longer.
  constexpr int64_t kFewest = 64;
  const int64_t bytes =
      rows.kernel_height * rows.width * int64_t(sizeof(float));
  const int64_t count = kCached / bytes / kLanes * kLanes;
  return count < kFewest ? rows.channels : count;
}

/// \tparam kVectors  Vectors of 16 channels whose sums for four pixels fit into
///                   the registers.
/// \tparam kWidth    The kernel's width, or 0 to compute single pixels.
template <int kVectors, int kWidth>
TERN_CPU_LOOP void compute_rows(const Rows& rows) {
  const int64_t at_once = channels_at_once(rows);
  for (int64_t c = rows.first_channel; c < rows.last_channel; c += at_once) {
    const int64_t end = std::min(c + at_once, rows.last_channel);
    for (int64_t y = rows.first; y < rows.last; ++y) {
      for (int64_t x = 0; x < rows.out_width;) {
        const auto can_compute = [&](int64_t count) {
          const int64_t left = x * rows.stride_x - rows.padding_x;
          const int64_t right = left + (count - 1) * rows.stride_x + kWidth;
          return kWidth > 0 && x + count <= rows.out_width && left >= 0 &&
                 right <= rows.width;
        };
        if (can_compute(4)) {
          compute_pixels<4, kVectors, kWidth>(rows, y, x, c, end);
          x += 4;
        } else if (can_compute(2)) {
          compute_pixels<2, 2 * kVectors, kWidth>(rows, y, x, c, end);
          x += 2;
        } else {
          compute_pixels<1, 2 * kVectors, 0>(rows, y, x, c, end);
          ++x;
        }
      }
    }
  }
}

template <int kWidth>
auto rows_function() {
  return cpu_isa() == CpuIsa::avx512 ? on_fma_isa<compute_rows<2, kWidth>>
                                     : on_fma_isa<compute_rows<1, kWidth>>;
}

}  // namespace

bool depthwise_conv_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef dilation) {
  constexpr int64_t kLargestKernel = 5;
  return has_fma() && images[0] == 1 && weight[0] >= kLanes && weight[1] == 1 &&
         weight[2] <= kLargestKernel && weight[3] <= kLargestKernel &&
         dilation[0] == 1 && dilation[1] == 1;
}

torch::Tensor depthwise_weight(
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias) {
  const int64_t channels = weight.size(0);
  torch::Tensor rows = at::zeros(
      {1 + weight.size(2) * weight.size(3), channels},
      weight.options());
  if (bias) rows[0].copy_(*bias);
  rows.slice(0, 1).copy_(weight.flatten(1).t());
  return rows;
}

torch::Tensor depthwise_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    at::IntArrayRef kernel_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    const ConvActivation& activation) {
  const int64_t channels = weight.dim() == 2 ? weight.size(1) : 0;
  TERN_CHECK_VALUE(
      kernel_size.size() == 2 && stride.size() == 2 && padding.size() == 2 &&
          kernel_size[0] >= 1 && kernel_size[1] >= 1 && stride[0] >= 1 &&
          stride[1] >= 1 && padding[0] >= 0 && padding[1] >= 0,
      "[depthwise_conv2d] the kernel is {}, the stride {}, the padding {}; "
      "expected two numbers each, of at least 1, 1 and 0.",
      fmt::join(kernel_size, " x "),
      fmt::join(stride, " x "),
      fmt::join(padding, " x "));
  // Tensors are checked because they are read by address.
  TERN_CHECK_VALUE(
      images.dim() == 4 && is_float_on_cpu(images) &&
          images.size(1) == channels && channels >= kLanes &&
          is_float_on_cpu(weight) && weight.is_contiguous() &&
          weight.size(0) == 1 + kernel_size[0] * kernel_size[1],
      "[depthwise_conv2d] the images are {}, the weight {}; expected "
      "[N, C, H, W] kFloat on the CPU with at least 16 channels, and a weight "
      "of depthwise_weight for them.",
      describe(images),
      describe(weight));
  const int64_t height = images.size(2), width = images.size(3);
  const int64_t out_height =
      (height + 2 * padding[0] - kernel_size[0]) / stride[0] + 1;
  const int64_t out_width =
      (width + 2 * padding[1] - kernel_size[1]) / stride[1] + 1;
  TERN_CHECK_VALUE(
      height >= 1 && width >= 1 && height + 2 * padding[0] >= kernel_size[0] &&
          width + 2 * padding[1] >= kernel_size[1],
      "[depthwise_conv2d] the images are {}; expected at least one pixel, and "
      "after padding the kernel's {} x {} pixels.",
      describe(images),
      kernel_size[0],
      kernel_size[1]);
  const auto last = at::MemoryFormat::ChannelsLast;
  const torch::Tensor source = images.contiguous(last);
  torch::Tensor result = at::empty(
      {images.size(0), channels, out_height, out_width},
      images.options(),
      last);
  const auto compute = kernel_size[1] == 3   ? rows_function<3>()
                       : kernel_size[1] == 5 ? rows_function<5>()
                                             : rows_function<0>();
  const int64_t rows = images.size(0) * out_height;
  const int64_t work = rows * out_width * channels * (weight.size(0) - 1);
  const int64_t wanted =
      std::clamp<int64_t>(work / kDepthwiseWork, 1, at::get_num_threads());
  // Threads share the rows, or the channels if there are few rows.
  const int64_t row_parts = std::clamp<int64_t>(rows, 1, wanted);
  const int64_t vectors = channels / kLanes;
  const int64_t channel_parts = std::min(wanted / row_parts, vectors);
  const auto compute_part = [&](int64_t begin, int64_t end, int64_t part) {
    const auto channel_at = [&](int64_t i) {
      return i == channel_parts ? channels
                                : vectors * i / channel_parts * kLanes;
    };
    while (begin < end) {
      const int64_t image = begin / out_height, row = begin % out_height;
      const int64_t count = std::min(end - begin, out_height - row);
      compute(Rows{
          .image = source.const_data_ptr<float>() +
                   image * height * width * channels,
          .weight = weight.const_data_ptr<float>(),
          .result = result.mutable_data_ptr<float>() +
                    image * out_height * out_width * channels,
          .channels = channels,
          .height = height,
          .width = width,
          .out_width = out_width,
          .kernel_height = kernel_size[0],
          .kernel_width = kernel_size[1],
          .stride_y = stride[0],
          .stride_x = stride[1],
          .padding_y = padding[0],
          .padding_x = padding[1],
          .first = row,
          .last = row + count,
          .first_channel = channel_at(part),
          .last_channel = channel_at(part + 1),
          .activation = &activation});
      begin += count;
    }
  };
  parallel_for(
      0,
      row_parts * channel_parts,
      1,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row_part = i / channel_parts;
          compute_part(
              rows * row_part / row_parts,
              rows * (row_part + 1) / row_parts,
              i % channel_parts);
        }
      });
  return result;
}

}  // namespace tern
