#include "tern/kernels/depthwise_weight_gradient.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/float_lanes.h"
#include "tern/kernels/parallel_for.h"

// The gradient of weight [c, tap] is the sum over output pixels of
// gradient[pixel, c] * images[pixel seen through the tap, c]. Sixteen channels
// of an image are computed at a time: their pixels, with the padding around
// them, are converted to fp32 and stay in the cache while each row of the
// gradient is multiplied with the rows that it sees, for all taps of a row at
// once.

namespace tern {
namespace {

constexpr int64_t kWidestKernel = 7;  // taps of a row that fit in registers

/// Sizes of one image of a batch.
struct DepthwiseSizes {
  int64_t channels, height, width, out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;

  int64_t padded_height() const {
    return (out_height - 1) * stride_y + (kernel_height - 1) * dilation_y + 1;
  }
  int64_t padded_width() const {
    return (out_width - 1) * stride_x + (kernel_width - 1) * dilation_x + 1;
  }
};

/// Converts sixteen channels of an image to fp32, with the padding.
/// \param from  The first of the channels in [H, W, C].
/// \param to    [padded_height, padded_width, 16], whose padding is 0.
TERN_CPU_LOOP void
widen_image(const uint16_t* from, const DepthwiseSizes& sizes, float* to) {
  const int64_t padded_width = sizes.padded_width();
  const int64_t last_row =
      std::min(sizes.height, sizes.padded_height() - sizes.padding_y);
  const int64_t last_column =
      std::min(sizes.width, padded_width - sizes.padding_x);
  Floats x;
  for (int64_t row = 0; row < last_row; ++row) {
    float* const line =
        to +
        ((row + sizes.padding_y) * padded_width + sizes.padding_x) * kLanes;
    for (int64_t column = 0; column < last_column; ++column) {
      load_floats(from + (row * sizes.width + column) * sizes.channels, x);
      store_floats(x, line + column * kLanes);
    }
  }
}

/// Adds the products of one row of the gradient with one row of the image.
/// \param gradient  [out_width, 16]
/// \param image     [padded_width, 16]
/// \param sums      [kWidth, 16]
template <int64_t kWidth>
TERN_CPU_LOOP void add_row(
    const float* gradient,
    const float* image,
    const DepthwiseSizes& sizes,
    float* sums) {
  Floats sum[kWidth], g, x;
  for (int64_t tap = 0; tap < kWidth; ++tap) {
    load_floats(sums + tap * kLanes, sum[tap]);
  }
  const int64_t step = sizes.stride_x * kLanes;
  const int64_t apart = sizes.dilation_x * kLanes;
  for (int64_t i = 0; i < sizes.out_width; ++i) {
    load_floats(gradient + i * kLanes, g);
    for (int64_t tap = 0; tap < kWidth; ++tap) {
      load_floats(image + i * step + tap * apart, x);
      sum[tap] += g * x;
    }
  }
  for (int64_t tap = 0; tap < kWidth; ++tap) {
    store_floats(sum[tap], sums + tap * kLanes);
  }
}

/// Adds the products of sixteen channels of one image.
/// \param gradient  The first of the channels in [H', W', C].
/// \param image     As written by `widen_image`.
/// \param row       Buffer for [out_width, 16].
/// \param sums      [kernel_height, kWidth, 16]
template <int64_t kWidth>
TERN_CPU_LOOP void add_image(
    const uint16_t* gradient,
    const float* image,
    const DepthwiseSizes& sizes,
    float* row,
    float* sums) {
  Floats g;
  for (int64_t y = 0; y < sizes.out_height; ++y) {
    for (int64_t x = 0; x < sizes.out_width; ++x) {
      load_floats(gradient + (y * sizes.out_width + x) * sizes.channels, g);
      store_floats(g, row + x * kLanes);
    }
    for (int64_t tap = 0; tap < sizes.kernel_height; ++tap) {
      const int64_t seen = y * sizes.stride_y + tap * sizes.dilation_y;
      add_row<kWidth>(
          row,
          image + seen * sizes.padded_width() * kLanes,
          sizes,
          sums + tap * kWidth * kLanes);
    }
  }
}

using AddImage = void (*)(
    const uint16_t*,
    const float*,
    const DepthwiseSizes&,
    float*,
    float*);

template <int64_t kWidth>
void add_image_on_cpu(
    const uint16_t* gradient,
    const float* image,
    const DepthwiseSizes& sizes,
    float* row,
    float* sums) {
  on_cpu_isa<add_image<kWidth>>(gradient, image, sizes, row, sums);
}

AddImage add_image_of(int64_t kernel_width) {
  constexpr AddImage kOfWidth[kWidestKernel] = {
      add_image_on_cpu<1>,
      add_image_on_cpu<2>,
      add_image_on_cpu<3>,
      add_image_on_cpu<4>,
      add_image_on_cpu<5>,
      add_image_on_cpu<6>,
      add_image_on_cpu<7>};
  return kOfWidth[kernel_width - 1];
}

}  // namespace

bool depthwise_weight_gradient_pays(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    at::IntArrayRef kernel_size) {
  const auto last = at::MemoryFormat::ChannelsLast;
  return images.dim() == 4 && images.device().is_cpu() &&
         gradient.numel() > 0 && images.scalar_type() == torch::kBFloat16 &&
         gradient.scalar_type() == torch::kBFloat16 &&
         images.size(1) % kLanes == 0 && images.size(1) == gradient.size(1) &&
         kernel_size[1] <= kWidestKernel && images.is_contiguous(last);
}

torch::Tensor depthwise_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry) {
  RECORD_FUNCTION(
      "tern::depthwise_weight_gradient",
      std::vector<c10::IValue>());
  const auto& [kernel_size, stride, padding, dilation] = geometry;
  TERN_CHECK_VALUE(
      images.dim() == 4 && gradient.dim() == 4 &&
          images.size(0) == gradient.size(0) &&
          images.size(1) == gradient.size(1) && images.size(1) % kLanes == 0 &&
          images.scalar_type() == torch::kBFloat16 &&
          gradient.scalar_type() == torch::kBFloat16 &&
          kernel_size[1] <= kWidestKernel,
      "[depthwise_weight_gradient] the images are {}, the gradient is {} and "
      "the kernel {} wide; expected [N, C, H, W] and [N, C, H', W'] kBFloat16 "
      "with a multiple of 16 channels, and a kernel up to {} wide.",
      describe(images),
      describe(gradient),
      kernel_size[1],
      kWidestKernel);
  const auto last = at::MemoryFormat::ChannelsLast;
  const torch::Tensor source = images.contiguous(last);
  const torch::Tensor given = gradient.contiguous(last);
  const DepthwiseSizes sizes{
      .channels = images.size(1),
      .height = images.size(2),
      .width = images.size(3),
      .out_height = gradient.size(2),
      .out_width = gradient.size(3),
      .kernel_height = kernel_size[0],
      .kernel_width = kernel_size[1],
      .stride_y = stride[0],
      .stride_x = stride[1],
      .padding_y = padding[0],
      .padding_x = padding[1],
      .dilation_y = dilation[0],
      .dilation_x = dilation[1]};
  const int64_t blocks = sizes.channels / kLanes;
  const int64_t numbers = sizes.kernel_height * sizes.kernel_width * kLanes;
  const int64_t count = images.size(0) * blocks;
  const int64_t threads = std::clamp<int64_t>(count, 1, at::get_num_threads());
  const auto floats = images.options().dtype(torch::kFloat);
  // One set of sums per thread and a fixed part of the work, so that the result
  // does not depend on timing.
  const torch::Tensor sums = at::zeros({threads, blocks, numbers}, floats);
  const AddImage add = add_image_of(sizes.kernel_width);
  parallel_for(0, threads, 1, [&](int64_t first, int64_t end) {
    const torch::Tensor widened = at::zeros(
        {sizes.padded_height(), sizes.padded_width(), kLanes},
        floats);
    const torch::Tensor row = at::empty({sizes.out_width, kLanes}, floats);
    for (int64_t thread = first; thread < end; ++thread) {
      for (int64_t i = count * thread / threads;
           i < count * (thread + 1) / threads;
           ++i) {
        const int64_t image = i / blocks, block = i % blocks;
        const auto* const pixels =
            static_cast<const uint16_t*>(source.const_data_ptr());
        const auto* const gradients =
            static_cast<const uint16_t*>(given.const_data_ptr());
        on_cpu_isa<widen_image>(
            pixels + image * sizes.height * sizes.width * sizes.channels +
                block * kLanes,
            sizes,
            widened.data_ptr<float>());
        add(gradients +
                image * sizes.out_height * sizes.out_width * sizes.channels +
                block * kLanes,
            widened.const_data_ptr<float>(),
            sizes,
            row.data_ptr<float>(),
            sums.data_ptr<float>() + (thread * blocks + block) * numbers);
      }
    }
  });
  return sums.sum(0)
      .view({blocks, sizes.kernel_height, sizes.kernel_width, kLanes})
      .permute({0, 3, 1, 2})
      .reshape({sizes.channels, 1, sizes.kernel_height, sizes.kernel_width})
      .to(torch::kBFloat16);
}

}  // namespace tern
