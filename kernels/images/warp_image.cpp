#include "tern/kernels/images/warp_image.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/images/augment_images_math.h"
#include "tern/kernels/images/pixel_lanes.h"

namespace tern {
namespace {

constexpr int kColumns = 256;  // of a block; its coordinates stay in L1

/// For a block of pixels of a row: the offsets and weights of their four
/// neighbors.
///
/// `Offset` is int64_t for a source of more than 2^31 bytes, and int32_t for
/// all others, which is a quarter faster.
template <class Offset>
struct Taps {
  alignas(64) float x[kColumns], y[kColumns];
  alignas(64) Offset offset[kColumns];  // in bytes
  /// Weights of the left and right, and of the upper and lower neighbor, in
  /// 1/256, as the low and high half of a word.
  alignas(64) uint32_t weight_x[kColumns], weight_y[kColumns];
};

/// Computes the source positions of the pixels of row `row`, starting at
/// `first`, relative to the center of the source's first pixel.
template <class Offset>
TERN_CPU_LOOP void locate(
    const Warp& warp,
    int64_t row,
    int64_t first,
    int count,
    Taps<Offset>& t) {
  const auto& m = warp.matrix.values;
  const double y = static_cast<double>(row) + 0.5;
  const double x = static_cast<double>(first) + 0.5;
  // Starts are rounded once, so that the error does not grow along the row.
  const auto start_x = static_cast<float>(m[0] * x + m[1] * y + m[2]);
  const auto start_y = static_cast<float>(m[3] * x + m[4] * y + m[5]);
  const auto step_x = static_cast<float>(m[0]);
  const auto step_y = static_cast<float>(m[3]);
  for (int i = 0; i < count; ++i) {
    t.x[i] = start_x + step_x * static_cast<float>(i);
    t.y[i] = start_y + step_y * static_cast<float>(i);
  }
  if (!warp.matrix.is_affine() || m[8] != 1) {
    const auto start_w = static_cast<float>(m[6] * x + m[7] * y + m[8]);
    const auto step_w = static_cast<float>(m[6]);
    for (int i = 0; i < count; ++i) {
      const float w = 1 / (start_w + step_w * static_cast<float>(i));
      t.x[i] *= w;
      t.y[i] *= w;
    }
  }
  if (warp.jitter_x != 0 || warp.jitter_y != 0) {
    for (int i = 0; i < count; ++i) {
      const uint32_t bits = hash_of(
          warp.jitter_key,
          static_cast<uint32_t>(row),
          static_cast<uint32_t>(first + i));
      t.x[i] += jitter_of(bits) * warp.jitter_x;
      t.y[i] += jitter_of(bits >> 16) * warp.jitter_y;
    }
  }
  for (int i = 0; i < count; ++i) {
    t.x[i] -= 0.5f;
    t.y[i] -= 0.5f;
  }
}

/// Moves coordinates into 0..size-1, after reflection at the edges if
/// requested. NaN and values that are too large become 0.
TERN_CPU_LOOP void
keep_inside(float* at, int count, int64_t size, bool reflect) {
  const auto span = static_cast<float>(size);
  const float last = span - 1;
  if (reflect) {
    for (int i = 0; i < count; ++i) {
      // Reflected at -0.5 and size - 0.5, with a period of twice the size.
      const float shifted = at[i] + 0.5f;
      const float turns = std::floor(shifted / (2 * span));
      const float in_period = shifted - turns * 2 * span;
      at[i] = span - std::fabs(in_period - span) - 0.5f;
    }
  }
  for (int i = 0; i < count; ++i) {
    const float value = at[i];
    at[i] = value > 0 ? (value < last ? value : last) : 0.f;
  }
}

template <class Offset>
TERN_CPU_LOOP void weigh(const PixelView& source, int count, Taps<Offset>& t) {
  const auto last_x = static_cast<int32_t>(std::max<int64_t>(source.width, 2));
  const auto last_y = static_cast<int32_t>(std::max<int64_t>(source.height, 2));
  const auto stride = static_cast<Offset>(source.stride);
  const auto channels = static_cast<Offset>(source.channels);
  for (int i = 0; i < count; ++i) {
    const int32_t x = std::min(static_cast<int32_t>(t.x[i]), last_x - 2);
    const int32_t y = std::min(static_cast<int32_t>(t.y[i]), last_y - 2);
    const auto right =
        static_cast<uint32_t>((t.x[i] - static_cast<float>(x)) * 256 + 0.5f);
    const auto lower =
        static_cast<uint32_t>((t.y[i] - static_cast<float>(y)) * 256 + 0.5f);
    t.offset[i] = y * stride + x * channels;
    t.weight_x[i] = (256 - right) | right << 16;
    t.weight_y[i] = (256 - lower) | lower << 16;
  }
}

/// Interpolates one pixel from its four neighbors; reference implementation of
/// the arithmetic.
TERN_CPU_LOOP void blend(
    const uint8_t* from,
    int64_t channels,
    int64_t right,
    int64_t lower,
    uint32_t weight_x,
    uint32_t weight_y,
    uint8_t* to) {
  const uint32_t left_x = weight_x & 0xffff, right_x = weight_x >> 16;
  const uint32_t upper_y = weight_y & 0xffff, lower_y = weight_y >> 16;
  for (int64_t c = 0; c < channels; ++c) {
    const uint32_t upper = (from[c] * left_x + from[c + right] * right_x) >> 1;
    const uint32_t below =
        (from[c + lower] * left_x + from[c + lower + right] * right_x) >> 1;
    to[c] =
        static_cast<uint8_t>((upper * upper_y + below * lower_y + 16384) >> 15);
  }
}

template <class Offset>
TERN_CPU_LOOP void blend_row(
    const PixelView& source,
    int first,
    int count,
    const Taps<Offset>& __restrict t,
    uint8_t* __restrict to) {
  const int64_t channels = source.channels;
  const int64_t right = source.width > 1 ? channels : 0;
  const int64_t lower = source.height > 1 ? source.stride : 0;
  for (int i = first; i < count; ++i) {
    blend(
        source.pixels + t.offset[i],
        channels,
        right,
        lower,
        t.weight_x[i],
        t.weight_y[i],
        to + i * channels);
  }
}

#ifdef TERN_HAS_PIXEL_LANES

/// Reorders RGBRGB of two pixels to halves RR GG BB, with the left and right
/// neighbor in one word.
TERN_CPU_LOOP Lanes neighbors(const uint8_t* from) {
  const ByteLanes zero{};
  return reinterpret_cast<Lanes>(__builtin_shufflevector(
      load_8_bytes(from),
      zero,
      0,
      16,
      3,
      16,
      1,
      16,
      4,
      16,
      2,
      16,
      5,
      16,
      16,
      16,
      16,
      16));
}

/// `blend_row` for three channels: all channels of a pixel at once. Reads 8
/// bytes of each row and writes 4.
template <class Offset>
TERN_PIXEL_LOOP void blend_rgb_row(
    const PixelView& source,
    int count,
    const Taps<Offset>& t,
    uint8_t* to) {
  const int64_t lower = source.height > 1 ? source.stride : 0;
  const int64_t readable = source.end - source.pixels - lower - 8;
  // The last pixel is computed separately, so that no byte is written past the
  // end.
  for (int i = 0; i < count - 1; ++i) {
    const uint8_t* from = source.pixels + t.offset[i];
    if (t.offset[i] > readable) {
      blend(from, 3, 3, lower, t.weight_x[i], t.weight_y[i], to + i * 3);
      continue;
    }
    const Lanes wx = Lanes{} + t.weight_x[i];
    const Lanes upper = dot_of_halves(neighbors(from), wx) >> 1;
    const Lanes below = dot_of_halves(neighbors(from + lower), wx) >> 1;
    const Lanes both = upper | (below << 16);
    const Lanes sums = dot_of_halves(both, Lanes{} + t.weight_y[i]) + 16384;
    store_low_bytes(sums >> 15, to + i * 3);
  }
  blend_row(source, count - 1, count, t, to);
}

#endif

/// For black outside: missing neighbors count as 0.
template <class Offset>
TERN_CPU_LOOP void blend_row_on_black(
    const PixelView& source,
    int count,
    const Taps<Offset>& __restrict t,
    uint8_t* __restrict to) {
  const auto channels = static_cast<int32_t>(source.channels);
  const auto height = static_cast<int32_t>(source.height);
  const auto width = static_cast<int32_t>(source.width);
  for (int i = 0; i < count; ++i) {
    const AxisTap across = axis_tap(t.x[i], width, Padding::zeros);
    const AxisTap down = axis_tap(t.y[i], height, Padding::zeros);
    for (int32_t c = 0; c < channels; ++c) {
      *to++ = blend_taps(
          source.pixels,
          source.stride,
          channels,
          height,
          width,
          down,
          across,
          c);
    }
  }
}

template <class Offset>
TERN_CPU_LOOP void pick_row(
    const PixelView& source,
    bool on_black,
    int count,
    const Taps<Offset>& t,
    uint8_t* to) {
  const auto last_x = static_cast<float>(source.width - 1);
  const auto last_y = static_cast<float>(source.height - 1);
  const int64_t channels = source.channels;
  for (int i = 0; i < count; ++i, to += channels) {
    const float x = std::floor(t.x[i] + 0.5f), y = std::floor(t.y[i] + 0.5f);
    if (on_black && !(x >= 0 && y >= 0 && x <= last_x && y <= last_y)) {
      std::memset(to, 0, static_cast<size_t>(channels));
      continue;
    }
    const uint8_t* from = source.pixels +
                          static_cast<int64_t>(y) * source.stride +
                          static_cast<int64_t>(x) * channels;
    for (int64_t c = 0; c < channels; ++c) {
      to[c] = from[c];
    }
  }
}

template <class Offset>
void sample_row(
    const PixelView& source,
    const Warp& warp,
    int count,
    Taps<Offset>& t,
    uint8_t* to) {
  const bool on_black = warp.padding == Padding::zeros;
  if (!on_black) {
    const bool reflect = warp.padding == Padding::reflection;
    on_cpu_isa<keep_inside>(t.x, count, source.width, reflect);
    on_cpu_isa<keep_inside>(t.y, count, source.height, reflect);
  }
  if (warp.sampling == Sampling::nearest) {
    return on_cpu_isa<pick_row<Offset>>(source, on_black, count, t, to);
  }
  if (on_black) {
    return on_cpu_isa<blend_row_on_black<Offset>>(source, count, t, to);
  }
  on_cpu_isa<weigh<Offset>>(source, count, t);
#ifdef TERN_HAS_PIXEL_LANES
  const bool is_rgb = source.channels == 3 && source.width > 1;
  if (is_rgb && has_pixel_lanes()) {
    return blend_rgb_row(source, count, t, to);
  }
#endif
  on_cpu_isa<blend_row<Offset>>(source, 0, count, t, to);
}

template <class Offset>
void warp_blocks(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out) {
  Taps<Offset> taps;
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t first = 0; first < width; first += kColumns) {
      const int count =
          static_cast<int>(std::min<int64_t>(kColumns, width - first));
      on_cpu_isa<locate<Offset>>(warp, row, first, count, taps);
      sample_row(source, warp, count, taps, out);
      out += count * source.channels;
    }
  }
}

/// Adds up the rows of one block row, column by column; `sums` holds a row.
TERN_CPU_LOOP void add_rows(
    const uint8_t* __restrict pixels,
    int64_t count,
    uint32_t* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += pixels[i];
  }
}

TERN_CPU_LOOP void shrink_rows(
    const PixelView& source,
    int64_t down,
    int64_t across,
    uint8_t* __restrict out) {
  constexpr int64_t kBlock = 3072;  // bytes of a row per pass
  alignas(64) uint32_t sums[kBlock];
  const int64_t channels = source.channels;
  const int64_t columns = (source.width + across - 1) / across;
  // Whole blocks of `across` columns, unless a single one is longer.
  const int64_t step = std::max<int64_t>(1, kBlock / (across * channels));
  for (int64_t top = 0; top < source.height; top += down) {
    const int64_t rows = std::min(down, source.height - top);
    for (int64_t column = 0; column < columns; column += step) {
      const int64_t first = column * across;
      const int64_t last = std::min(source.width, (column + step) * across);
      const int64_t count = std::min((last - first) * channels, kBlock);
      std::fill(sums, sums + count, 0u);
      for (int64_t row = top; row < top + rows; ++row) {
        add_rows(
            source.pixels + row * source.stride + first * channels,
            count,
            sums);
      }
      const uint32_t* sum = sums;
      for (int64_t x = first; x < last; x += across) {
        const int64_t width = std::min({across, last - x, count / channels});
        const auto area = static_cast<uint32_t>(rows * width);
        for (int64_t c = 0; c < channels; ++c) {
          uint32_t total = area / 2;
          for (int64_t i = 0; i < width; ++i) {
            total += sum[i * channels + c];
          }
          *out++ = static_cast<uint8_t>(total / area);
        }
        sum += width * channels;
      }
    }
  }
}

}  // namespace

Matrix3 Matrix3::inverse() const {
  const auto& m = values;
  // The determinant that remains without a row and a column.
  const auto minor = [&m](int a, int b, int c, int d) {
    return m[a] * m[d] - m[b] * m[c];
  };
  const Matrix3 adjugate = {
      {minor(4, 5, 7, 8),
       -minor(1, 2, 7, 8),
       minor(1, 2, 4, 5),
       -minor(3, 5, 6, 8),
       minor(0, 2, 6, 8),
       -minor(0, 2, 3, 5),
       minor(3, 4, 6, 7),
       -minor(0, 1, 6, 7),
       minor(0, 1, 3, 4)}};
  const double determinant = this->determinant();
  TERN_CHECK_VALUE(
      std::isfinite(1 / determinant),
      "[Matrix3::inverse] the matrix has the determinant {}, so it maps the "
      "plane to a line or a point; expected an invertible matrix. Check "
      "whether the transform has a scale of 0.",
      determinant);
  Matrix3 inverse;
  for (size_t i = 0; i < values.size(); ++i) {
    inverse.values[i] = adjugate.values[i] / determinant;
  }
  return inverse;
}

void warp_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out) {
  constexpr int64_t kMostBytes = std::numeric_limits<int32_t>::max();
  const bool is_large = source.height * source.stride > kMostBytes;
  (is_large ? warp_blocks<int64_t>
            : warp_blocks<int32_t>)(source, warp, height, width, out);
}

void shrink_by_area(
    const PixelView& source,
    int64_t down,
    int64_t across,
    uint8_t* out) {
  on_cpu_isa<shrink_rows>(source, down, across, out);
}

std::pair<float, float> warp_jitter(uint32_t key, int64_t y, int64_t x) {
  const uint32_t bits =
      hash_of(key, static_cast<uint32_t>(y), static_cast<uint32_t>(x));
  return {jitter_of(bits), jitter_of(bits >> 16)};
}

}  // namespace tern
