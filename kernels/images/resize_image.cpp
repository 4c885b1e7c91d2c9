#include "tern/kernels/images/resize_image.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/images/pixel_lanes.h"

namespace tern {
namespace {

// The weights of a pixel add up to 2^14; a column's mean has 7 fractional bits,
// so that both fit into signed 16-bit words.
constexpr int kWeightBits = 14, kFractionBits = 7;
constexpr int kDropped = kWeightBits - kFractionBits;
// For up to this many rows the mean is computed in 16 bits. Each weighted pixel
// is rounded down by less than 1/128, and half of that is added before, so the
// error of the mean is less than 1/8, and almost always a few hundredths.
constexpr int64_t kFewRows = 32;

/// The source pixels and weights of each result pixel along one axis.
struct SideWeights {
  /// `count` pixels starting at `first`, 0 for black outside; their weights
  /// start at `weights[i * stride]` and are followed by zeros.
  std::vector<int64_t> first, count;
  std::vector<int16_t> weights;
  int64_t stride = 0;
  /// Range of all source pixels that are used.
  int64_t begin = 0, end = 0;
};

/// Maps the center of a pixel into an axis of `size` pixels; negative for black
/// outside.
double inside(double middle, double half, double size, Padding padding) {
  if (middle >= 0 && middle < size) return middle;
  if (padding == Padding::zeros) return -1;
  if (padding == Padding::reflection) {
    const double in_period =
        middle - std::floor(middle / (2 * size)) * 2 * size;
    middle = size - std::fabs(in_period - size);
  }
  half = std::min(half, size / 2);
  return middle > half ? std::min(middle, size - half) : half;
}

/// \param scale, start  The center of result pixel i is at scale * (i + 0.5) +
///                      start.
void weigh_side(
    double scale,
    double start,
    int64_t source,
    int64_t result,
    Padding padding,
    SideWeights& side) {
  const double radius = std::max(1.0, std::fabs(scale));
  const auto size = static_cast<double>(source);
  // Two more, for the ends and to make the number even.
  side.stride =
      (std::min(source, static_cast<int64_t>(2 * radius) + 2) + 2) & ~1;
  side.first.assign(static_cast<size_t>(result), 0);
  side.count.assign(static_cast<size_t>(result), 0);
  side.weights.assign(static_cast<size_t>(result * side.stride), 0);
  side.begin = source;
  side.end = 0;
  for (int64_t i = 0; i < result; ++i) {
    const double middle = inside(
        scale * (static_cast<double>(i) + 0.5) + start,
        std::fabs(scale) / 2,
        size,
        padding);
    if (middle < 0) continue;
    const auto first = static_cast<int64_t>(
        std::clamp(std::floor(middle - radius + 0.5), 0.0, size - 1));
    const auto last = static_cast<int64_t>(std::clamp(
        std::floor(middle + radius + 0.5),
        static_cast<double>(first + 1),
        size));
    const auto weight = [&](int64_t k) {
      const double distance = static_cast<double>(k) + 0.5 - middle;
      return std::max(1e-9, 1 - std::fabs(distance) / radius);
    };
    double total = 0, so_far = 0;
    for (int64_t k = first; k < last; ++k) total += weight(k);
    int64_t given = 0;
    int16_t* to = side.weights.data() + i * side.stride;
    // Rounds cumulative sums, so that the weights add up exactly.
    for (int64_t k = first; k < last; ++k) {
      so_far += weight(k);
      const int64_t sum = std::llround(so_far / total * (1 << kWeightBits));
      *to++ = static_cast<int16_t>(sum - given);
      given = sum;
    }
    side.first[static_cast<size_t>(i)] = first;
    side.count[static_cast<size_t>(i)] = last - first;
    side.begin = std::min(side.begin, first);
    side.end = std::max(side.end, last);
  }
}

/// Computes the means of rows of `count` bytes, column by column.
TERN_CPU_LOOP void mean_of_rows(
    const uint8_t* first_row,
    int64_t stride,
    const int16_t* weights,
    int64_t rows,
    int64_t count,
    int16_t* __restrict means) {
  constexpr int64_t kBlock = 1024;
  alignas(64) int32_t sums[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    for (int64_t i = 0; i < n; ++i) sums[i] = 1 << (kDropped - 1);
    for (int64_t row = 0; row < rows; ++row) {
      const uint8_t* __restrict from = first_row + row * stride + first;
      const int32_t weight = weights[row];
      for (int64_t i = 0; i < n; ++i) sums[i] += weight * from[i];
    }
    for (int64_t i = 0; i < n; ++i) {
      means[first + i] = static_cast<int16_t>(sums[i] >> kDropped);
    }
  }
}

/// The same for at most `kFewRows`; reference implementation of its arithmetic.
void mean_of_few_rows(
    const uint8_t* first_row,
    int64_t stride,
    const int16_t* weights,
    int64_t rows,
    int64_t count,
    int16_t* __restrict means) {
  std::fill_n(means, count, static_cast<int16_t>(rows / 2));
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* __restrict from = first_row + row * stride;
    const int32_t weight = weights[row];
    for (int64_t i = 0; i < count; ++i) {
      const auto part = static_cast<int16_t>(weight * from[i] >> kDropped);
      means[i] = static_cast<int16_t>(means[i] + part);
    }
  }
}

constexpr int32_t kHalf = 1 << (kWeightBits + kFractionBits - 1);

/// Computes one row of the result from the means of columns, starting at
/// `side.begin`; reference implementation of the arithmetic.
TERN_CPU_LOOP void mix_row(
    const int16_t* means,
    int64_t channels,
    const SideWeights& side,
    int64_t first,
    int64_t width,
    uint8_t* out) {
  for (int64_t i = first; i < width; ++i) {
    const auto at = static_cast<size_t>(i);
    const int16_t* from = means + (side.first[at] - side.begin) * channels;
    const int16_t* weights = side.weights.data() + i * side.stride;
    for (int64_t c = 0; c < channels; ++c) {
      int32_t sum = kHalf;
      for (int64_t k = 0; k < side.count[at]; ++k) {
        sum += weights[k] * from[k * channels + c];
      }
      out[i * channels + c] =
          static_cast<uint8_t>(sum >> (kWeightBits + kFractionBits));
    }
  }
}

#ifdef __x86_64__

/// `mean_of_few_rows` for at least 32 bytes. Bytes become words times 256, even
/// and odd ones separately, and a multiplication keeps the upper half.
TERN_AVX2 void mean_of_few_rows_avx2(
    const uint8_t* first_row,
    int64_t stride,
    const int16_t* weights,
    int64_t rows,
    int64_t count,
    int16_t* means) {
  const __m256i odd_bytes = _mm256_set1_epi16(static_cast<int16_t>(0xff00));
  const __m256i half = _mm256_set1_epi16(static_cast<int16_t>(rows / 2));
  for (int64_t at = 0; at < count; at += 32) {
    const int64_t i = std::min(at, count - 32);
    __m256i even = half, odd = half;
    for (int64_t row = 0; row < rows; ++row) {
      const __m256i bytes = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(first_row + row * stride + i));
      const __m256i weight =
          _mm256_set1_epi16(static_cast<int16_t>(weights[row] << 1));
      even = _mm256_add_epi16(
          even,
          _mm256_mulhi_epu16(_mm256_slli_epi16(bytes, 8), weight));
      odd = _mm256_add_epi16(
          odd,
          _mm256_mulhi_epu16(_mm256_and_si256(bytes, odd_bytes), weight));
    }
    const __m256i low = _mm256_unpacklo_epi16(even, odd);
    const __m256i high = _mm256_unpackhi_epi16(even, odd);
    auto* const to = reinterpret_cast<__m256i*>(means + i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
  }
}

#endif
#ifdef TERN_HAS_PIXEL_LANES

/// `mix_row` for three channels: all channels of two pixels at once. Reads up
/// to 4 words, and writes one byte, past the end.
TERN_PIXEL_LOOP void mix_rgb_row(
    const int16_t* means,
    const SideWeights& side,
    int64_t width,
    uint8_t* out) {
  for (int64_t i = 0; i + 1 < width; ++i) {
    const auto at = static_cast<size_t>(i);
    const int16_t* from = means + (side.first[at] - side.begin) * 3;
    const int16_t* weights = side.weights.data() + i * side.stride;
    Lanes sum = Lanes{} + static_cast<uint32_t>(kHalf);
    for (int64_t k = 0; k < side.count[at]; k += 2) {
      uint32_t both = 0;
      __builtin_memcpy(&both, weights + k, 4);
      const auto pixels = load_16_bytes(from + k * 3);
      // RGBRGB to RR GG BB.
      const auto pairs = __builtin_shufflevector(
          pixels,
          pixels,
          0,
          1,
          6,
          7,
          2,
          3,
          8,
          9,
          4,
          5,
          10,
          11,
          -1,
          -1,
          -1,
          -1);
      sum += dot_of_halves(reinterpret_cast<Lanes>(pairs), Lanes{} + both);
    }
    store_low_bytes(sum >> (kWeightBits + kFractionBits), out + i * 3);
  }
  // The last pixel is computed separately, so that no byte is written past the
  // end.
  mix_row(means, 3, side, std::max<int64_t>(width - 1, 0), width, out);
}

#endif

/// \param down, across  Scale and start for rows and columns.
void resize_sides(
    const PixelView& source,
    std::pair<double, double> down,
    std::pair<double, double> across,
    Padding padding,
    int64_t height,
    int64_t width,
    uint8_t* out) {
  static thread_local SideWeights rows, columns;
  static thread_local std::vector<int16_t> means;
  weigh_side(down.first, down.second, source.height, height, padding, rows);
  weigh_side(
      across.first,
      across.second,
      source.width,
      width,
      padding,
      columns);
  const int64_t channels = source.channels;
  const int64_t count =
      std::max<int64_t>(columns.end - columns.begin, 0) * channels;
  means.assign(static_cast<size_t>(count + 8), 0);
#ifdef __x86_64__
  const auto mean_of_few = cpu_isa() != CpuIsa::baseline && count >= 32
                               ? mean_of_few_rows_avx2
                               : mean_of_few_rows;
#else
  const auto mean_of_few = mean_of_few_rows;
#endif
  for (int64_t y = 0; y < height; ++y, out += width * channels) {
    const auto at = static_cast<size_t>(y);
    if (rows.count[at] == 0) {
      std::fill_n(out, width * channels, uint8_t{0});
      continue;
    }
    const auto mean =
        rows.count[at] <= kFewRows ? mean_of_few : on_cpu_isa<mean_of_rows>;
    mean(
        source.pixels + rows.first[at] * source.stride +
            columns.begin * channels,
        source.stride,
        rows.weights.data() + y * rows.stride,
        rows.count[at],
        count,
        means.data());
#ifdef TERN_HAS_PIXEL_LANES
    if (channels == 3 && has_pixel_lanes()) {
      mix_rgb_row(means.data(), columns, width, out);
      continue;
    }
#endif
    on_cpu_isa<mix_row>(means.data(), channels, columns, 0, width, out);
  }
}

}  // namespace

bool only_resizes(const Warp& warp) {
  const auto& m = warp.matrix.values;
  return warp.matrix.is_affine() && m[8] == 1 &&
         warp.sampling == Sampling::bilinear && warp.jitter_x == 0 &&
         warp.jitter_y == 0 &&
         ((m[1] == 0 && m[3] == 0) || (m[0] == 0 && m[4] == 0));
}

void resize_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out) {
  const auto& m = warp.matrix.values;
  if (m[1] == 0 && m[3] == 0) {
    return resize_sides(
        source,
        {m[4], m[5]},
        {m[0], m[2]},
        warp.padding,
        height,
        width,
        out);
  }
  // Rows of the result are columns of the source.
  std::vector<uint8_t> lying(
      static_cast<size_t>(height * width * source.channels));
  resize_sides(
      source,
      {m[3], m[5]},
      {m[1], m[2]},
      warp.padding,
      width,
      height,
      lying.data());
  const uint8_t* from = lying.data();
  for (int64_t x = 0; x < width; ++x) {
    for (int64_t y = 0; y < height; ++y, from += source.channels) {
      std::copy_n(
          from,
          source.channels,
          out + (y * width + x) * source.channels);
    }
  }
}

}  // namespace tern
