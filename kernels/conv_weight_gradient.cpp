#include "tern/kernels/conv_weight_gradient.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/parallel_for.h"

// The gradient of weight [k, tap, c] is the sum over output pixels of
// gradient[pixel, k] * images[pixel seen through the tap, c]. This is a matrix
// product of [K, pixels] and [pixels, taps * C], computed for some pixels, one
// tap and 64 channels at a time. AMX multiplies pairs of bfloat16 along the
// summed dimension, so the gradient is transposed and pairs of pixels are
// interleaved, in blocks small enough to stay in the cache.

namespace tern {
namespace {

namespace blas = at::native::cpublas;

constexpr int64_t kChannelBlock = 64;  // columns of a product
constexpr int64_t kChannelStep = 16;   // channels interleaved at once
constexpr int64_t kPixelStep = 32;     // pixels that AMX sums at once
// oneDNN is faster for smaller weights.
constexpr int64_t kLeastChannels = 64, kLeastWeight = int64_t{64} * 64;
// Sizes of the transposed gradient, and of the sums over all pixels, that fit
// into a core's cache. If the sums are larger, threads split the outputs
// instead of the pixels.
constexpr int64_t kGradientBytes = int64_t{128} << 10,
                  kSumBytes = int64_t{1} << 20;

struct Sizes {
  Sizes(
      const torch::Tensor& images,
      const torch::Tensor& gradient,
      const ConvGeometry& geometry)
      : channels(images.size(1)),
        height(images.size(2)),
        width(images.size(3)),
        outputs(gradient.size(1)),
        out_height(gradient.size(2)),
        out_width(gradient.size(3)),
        pixels(gradient.size(0) * out_height * out_width),
        taps(geometry.kernel_size[0] * geometry.kernel_size[1]) {}

  int64_t channels, height, width;
  int64_t outputs, out_height, out_width, pixels;  // of the result
  int64_t taps;
};

/// The pixels and outputs that a thread computes.
struct Share {
  int64_t first_pixel, last_pixel;
  int64_t first_output, last_output;
};

/// Division of the work: by pixels, with separate sums per thread, or by
/// outputs.
struct Shares {
  Shares(const Sizes& sizes, int64_t threads) : sizes(sizes) {
    const int64_t sum_bytes =
        sizes.outputs * sizes.taps * sizes.channels * int64_t(sizeof(float));
    const int64_t wanted = (sum_bytes + kSumBytes - 1) / kSumBytes;
    const int64_t most = std::max<int64_t>(sizes.outputs / kPixelStep, 1);
    by_output = std::clamp<int64_t>(wanted, 1, std::min(threads, most));
    by_pixel = std::clamp<int64_t>(
        threads / by_output,
        1,
        (sizes.pixels + kPixelStep - 1) / kPixelStep);
    by_output = std::max(by_output, std::min(threads / by_pixel, most));
  }

  Share share(int64_t index) const {
    const int64_t pixel_part = index / by_output;
    const int64_t output_part = index % by_output;
    return {
        sizes.pixels * pixel_part / by_pixel,
        sizes.pixels * (pixel_part + 1) / by_pixel,
        sizes.outputs * output_part / by_output,
        sizes.outputs * (output_part + 1) / by_output};
  }

  const Sizes& sizes;
  int64_t by_output = 1, by_pixel = 1;
};

#ifdef __x86_64__

/// Transposes 16 x 16 numbers of 32 bits.
TERN_AVX512 inline void transpose(__m512i (&rows)[16]) {
  __m512i other[16];
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    other[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(other[i], other[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(other[i], other[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(other[i + 1], other[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(other[i + 1], other[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    other[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    other[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xDD);
    other[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    other[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xDD);
  }
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0xDD);
  }
}

/// Interleaves the numbers of two pixels, channel by channel.
TERN_AVX512 inline __m512i
interleave(const uint16_t* first, const uint16_t* second, __mmask16 mask) {
  const __m512i low =
      _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first));
  const __m512i high =
      _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/// Transposes rows of numbers.
/// \param from    [pixels, outputs], `stride` apart.
/// \param zeros   At least `outputs`.
/// \param to      [outputs, padded], `to_stride` apart; filled with 0 after
///                `pixels`.
/// \param padded  A multiple of kPixelStep.
TERN_AVX512 void transpose_pixels(
    const uint16_t* from,
    int64_t stride,
    const uint16_t* zeros,
    int64_t pixels,
    int64_t outputs,
    uint16_t* to,
    int64_t to_stride,
    int64_t padded) {
  const auto row = [&](int64_t pixel) {
    return pixel < pixels ? from + pixel * stride : zeros;
  };
  for (int64_t pixel = 0; pixel < padded; pixel += kPixelStep) {
    for (int64_t k = 0; k < outputs; k += 16) {
      const int64_t count = std::min<int64_t>(outputs - k, 16);
      const auto mask = static_cast<__mmask16>((1U << count) - 1);
      __m512i pairs[16];
      for (int64_t i = 0; i < 16; ++i) {
        pairs[i] = interleave(
            row(pixel + 2 * i) + k,
            row(pixel + 2 * i + 1) + k,
            mask);
      }
      transpose(pairs);
      for (int64_t i = 0; i < count; ++i) {
        _mm512_storeu_si512(to + (k + i) * to_stride + pixel, pairs[i]);
      }
    }
  }
}

/// Interleaves pairs of pixels.
/// \param rows   One per pixel; `count` of them, an even number.
/// \param width  Numbers per row; `to` is [count / 2, kChannelBlock, 2].
TERN_AVX512 void interleave_pixels(
    const uint16_t* const* rows,
    int64_t first_channel,
    int64_t count,
    int64_t width,
    uint16_t* to) {
  for (int64_t i = 0; i < count; i += 2) {
    const uint16_t* const first = rows[i] + first_channel;
    const uint16_t* const second = rows[i + 1] + first_channel;
    uint16_t* const pair = to + i * kChannelBlock;
    for (int64_t c = 0; c < width; c += 16) {
      _mm512_storeu_si512(
          pair + 2 * c,
          interleave(first + c, second + c, 0xFFFF));
    }
  }
}

#else

void transpose_pixels(
    const uint16_t*,
    int64_t,
    const uint16_t*,
    int64_t,
    int64_t,
    uint16_t*,
    int64_t,
    int64_t) {}
void interleave_pixels(
    const uint16_t* const*,
    int64_t,
    int64_t,
    int64_t,
    uint16_t*) {}

#endif

/// Positions in the images that the output pixels see.
class SeenPixels {
 public:
  SeenPixels(
      const uint16_t* images,
      const uint16_t* zeros,
      const Sizes& sizes,
      const ConvGeometry& geometry)
      : images_(images), zeros_(zeros), sizes_(sizes), geometry_(geometry) {}

  /// Sets the positions of output pixels [first, last).
  void look_at(int64_t first, int64_t last) {
    places_.clear();
    int64_t column = first % sizes_.out_width;
    int64_t row = first / sizes_.out_width % sizes_.out_height;
    int64_t image = first / sizes_.out_width / sizes_.out_height;
    for (int64_t pixel = first; pixel < last; ++pixel) {
      places_.push_back(
          {image,
           row * geometry_.stride[0] - geometry_.padding[0],
           column * geometry_.stride[1] - geometry_.padding[1]});
      if (++column < sizes_.out_width) continue;
      column = 0;
      if (++row < sizes_.out_height) continue;
      row = 0;
      ++image;
    }
  }

  /// Returns the channels that each pixel sees through a tap: zeros outside the
  /// images, and for pixels up to `padded`.
  const uint16_t* const* through(int64_t tap, int64_t padded) {
    const int64_t down = tap / geometry_.kernel_size[1] * geometry_.dilation[0];
    const int64_t right =
        tap % geometry_.kernel_size[1] * geometry_.dilation[1];
    rows_.assign(padded, zeros_);
    for (size_t i = 0; i < places_.size(); ++i) {
      const int64_t y = places_[i].row + down, x = places_[i].column + right;
      if (y < 0 || y >= sizes_.height || x < 0 || x >= sizes_.width) continue;
      const int64_t at = (places_[i].image * sizes_.height + y) * sizes_.width;
      rows_[i] = images_ + (at + x) * sizes_.channels;
    }
    return rows_.data();
  }

 private:
  struct Place {
    int64_t image, row, column;
  };

  const uint16_t* images_;
  const uint16_t* zeros_;
  const Sizes& sizes_;
  const ConvGeometry& geometry_;
  std::vector<Place> places_;
  std::vector<const uint16_t*> rows_;
};

/// Sums over the pixels of a share.
/// \param images, gradient  [N, H, W, C] and [N, H', W', K].
/// \param sums  [outputs of the share, taps * C]
void sum_share(
    const uint16_t* images,
    const uint16_t* gradient,
    const Sizes& sizes,
    const ConvGeometry& geometry,
    const Share& share,
    float* sums) {
  const int64_t outputs = share.last_output - share.first_output;
  const int64_t columns = sizes.taps * sizes.channels;
  const int64_t fitting = kGradientBytes / int64_t(sizeof(uint16_t)) / outputs;
  const int64_t at_once =
      std::max<int64_t>(fitting / kPixelStep * kPixelStep, 8 * kPixelStep);
  const std::vector<uint16_t> zeros(std::max(sizes.channels, sizes.outputs));
  // Aligned to cache lines; otherwise AMX takes twice as long.
  const auto buffer = [](int64_t count) {
    return at::empty({count}, torch::kBFloat16);
  };
  // With a power of two as stride, the rows would share the same cache lines.
  const int64_t stride = at_once + kPixelStep;
  const torch::Tensor transposed = buffer(outputs * stride);
  const torch::Tensor pairs = buffer(at_once * kChannelBlock);
  SeenPixels seen(images, zeros.data(), sizes, geometry);
  for (int64_t first = share.first_pixel; first < share.last_pixel;
       first += at_once) {
    const int64_t last = std::min(first + at_once, share.last_pixel);
    const int64_t padded =
        (last - first + kPixelStep - 1) / kPixelStep * kPixelStep;
    transpose_pixels(
        gradient + first * sizes.outputs + share.first_output,
        sizes.outputs,
        zeros.data(),
        last - first,
        outputs,
        static_cast<uint16_t*>(transposed.data_ptr()),
        stride,
        padded);
    seen.look_at(first, last);
    for (int64_t tap = 0; tap < sizes.taps; ++tap) {
      const uint16_t* const* const rows = seen.through(tap, padded);
      for (int64_t c = 0; c < sizes.channels; c += kChannelBlock) {
        const int64_t width = std::min(sizes.channels - c, kChannelBlock);
        interleave_pixels(
            rows,
            c,
            padded,
            width,
            static_cast<uint16_t*>(pairs.data_ptr()));
        blas::brgemm(
            outputs,
            width,
            padded,
            /*ld_a=*/stride,
            /*ld_b=*/kChannelBlock,
            /*ld_c=*/columns,
            /*add_C=*/first > share.first_pixel,
            transposed.const_data_ptr<at::BFloat16>(),
            pairs.const_data_ptr<at::BFloat16>(),
            sums + tap * sizes.channels + c);
      }
    }
  }
  blas::brgemm_release();
}

/// True if the processor supports this implementation.
bool has_amx() {
  return cpu_isa() == CpuIsa::avx512 && blas::could_pack(torch::kBFloat16);
}

void check_images(const torch::Tensor& images, const torch::Tensor& gradient) {
  TORCH_CHECK_VALUE(
      has_amx(),
      "[conv_weight_gradient] this processor has no AMX; expected a processor "
      "with AMX. Call conv_weight_gradient_pays first.");
  TERN_CHECK_VALUE(
      images.dim() == 4 && gradient.dim() == 4 &&
          images.size(0) == gradient.size(0) &&
          images.size(1) % kChannelStep == 0 &&
          images.scalar_type() == torch::kBFloat16 &&
          gradient.scalar_type() == torch::kBFloat16,
      "[conv_weight_gradient] the images are {} and the gradient is {}; "
      "expected [N, C, H, W] and [N, K, H', W'] kBFloat16, with C a multiple "
      "of {}.",
      describe(images),
      describe(gradient),
      kChannelStep);
}

}  // namespace

bool conv_weight_gradient_pays(
    const torch::Tensor& images,
    const torch::Tensor& gradient) {
  const auto last = at::MemoryFormat::ChannelsLast;
  return has_amx() && images.dim() == 4 && images.device().is_cpu() &&
         gradient.numel() > 0 && images.scalar_type() == torch::kBFloat16 &&
         gradient.scalar_type() == torch::kBFloat16 &&
         images.size(1) % kChannelStep == 0 &&
         images.size(1) >= kLeastChannels &&
         gradient.size(1) >= kLeastChannels &&
         images.size(1) * gradient.size(1) > kLeastWeight &&
         images.is_contiguous(last);
}

torch::Tensor conv_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry) {
  RECORD_FUNCTION("tern::conv_weight_gradient", std::vector<c10::IValue>());
  check_images(images, gradient);
  const auto last = at::MemoryFormat::ChannelsLast;
  const torch::Tensor source = images.contiguous(last);
  const torch::Tensor given = gradient.contiguous(last);
  const Sizes sizes(images, gradient, geometry);
  const Shares shares(sizes, at::get_num_threads());
  const int64_t columns = sizes.taps * sizes.channels;
  const torch::Tensor sums = at::empty(
      {shares.by_pixel, sizes.outputs, columns},
      images.options().dtype(torch::kFloat));
  const auto bits = [](const torch::Tensor& tensor) {
    return static_cast<const uint16_t*>(tensor.const_data_ptr());
  };
  parallel_for(
      0,
      shares.by_pixel * shares.by_output,
      1,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Share share = shares.share(i);
          const int64_t row =
              i / shares.by_output * sizes.outputs + share.first_output;
          sum_share(
              bits(source),
              bits(given),
              sizes,
              geometry,
              share,
              sums.data_ptr<float>() + row * columns);
        }
      });
  const torch::Tensor sum = shares.by_pixel == 1 ? sums[0] : sums.sum(0);
  return sum.to(torch::kBFloat16)
      .view(
          {sizes.outputs,
           geometry.kernel_size[0],
           geometry.kernel_size[1],
           sizes.channels})
      .permute({0, 3, 1, 2});
}

}  // namespace tern
