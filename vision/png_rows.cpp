#include "tern/vision/png_rows.h"

#include <cstdlib>
#include <cstring>

#include "tern/data/formats/load_bytes.h"

namespace tern {
namespace {

uint8_t paeth(int left, int above, int corner) {
  const int to_left = std::abs(above - corner);
  const int to_above = std::abs(left - corner);
  const int to_corner = std::abs(left + above - 2 * corner);
  if (to_left <= to_above && to_left <= to_corner) {
    return static_cast<uint8_t>(left);
  }
  return static_cast<uint8_t>(to_above <= to_corner ? above : corner);
}

/// The filters that look at the left neighbour, for a distance that the
/// compiler knows: it then keeps the neighbours in registers.
template <size_t kPixel>
void undo_left_filter(
    uint8_t filter,
    uint8_t* row,
    const uint8_t* above,
    size_t size) {
  uint8_t left[kPixel] = {};
  uint8_t corner[kPixel] = {};
  for (size_t i = 0; i + kPixel <= size; i += kPixel) {
    for (size_t k = 0; k < kPixel; ++k) {
      const uint8_t up = above == nullptr ? 0 : above[i + k];
      const int guess = filter == 1   ? left[k]
                        : filter == 3 ? (left[k] + up) / 2
                                      : paeth(left[k], up, corner[k]);
      left[k] = row[i + k] = static_cast<uint8_t>(row[i + k] + guess);
      corner[k] = up;
    }
  }
}

uint8_t grey_of(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + 16384) >> 15);
}

/// 0..65535 to 0..255, rounded: value / 257.
uint8_t to_byte(uint16_t value) {
  return static_cast<uint8_t>((value * uint32_t{255} + 32895) >> 16);
}

void put_grey(uint8_t value, int64_t channels, uint8_t* out) {
  out[0] = value;
  if (channels == 3) {
    out[1] = out[2] = value;
  }
}

void put_rgb(const uint8_t* rgb, int64_t channels, uint8_t* out) {
  if (channels == 3) {
    out[0] = rgb[0];
    out[1] = rgb[1];
    out[2] = rgb[2];
  } else {
    out[0] = grey_of(rgb);
  }
}

}  // namespace

bool undo_png_filter(
    uint8_t filter,
    uint8_t* row,
    const uint8_t* above,
    size_t row_bytes,
    size_t bytes_per_pixel) {
  if (filter == 0) {
    return true;
  }
  if (filter > 4) {
    return false;
  }
  if (filter == 2) {
    for (size_t i = 0; above != nullptr && i < row_bytes; ++i) {
      row[i] = static_cast<uint8_t>(row[i] + above[i]);
    }
    return true;
  }
  switch (bytes_per_pixel) {
    case 1:
      undo_left_filter<1>(filter, row, above, row_bytes);
      break;
    case 2:
      undo_left_filter<2>(filter, row, above, row_bytes);
      break;
    case 3:
      undo_left_filter<3>(filter, row, above, row_bytes);
      break;
    case 4:
      undo_left_filter<4>(filter, row, above, row_bytes);
      break;
    case 6:
      undo_left_filter<6>(filter, row, above, row_bytes);
      break;
    default:
      undo_left_filter<8>(filter, row, above, row_bytes);
      break;
  }
  return true;
}

void PngPixels::write_row(
    const uint8_t* row,
    int64_t width,
    int64_t channels,
    uint8_t* out,
    int64_t step) const {
  const int64_t count = samples();
  const bool is_coloured = colour == Colour::rgb || colour == Colour::rgb_alpha;
  if (colour == Colour::rgb && bit_depth == 8 && channels == 3 && step == 3) {
    std::memcpy(out, row, static_cast<size_t>(width) * 3);
    return;
  }
  if (bit_depth == 16) {
    for (int64_t x = 0; x < width; ++x, row += 2 * count, out += step) {
      if (is_coloured) {
        const uint8_t rgb[3] = {
            to_byte(load_be16(row)),
            to_byte(load_be16(row + 2)),
            to_byte(load_be16(row + 4))};
        put_rgb(rgb, channels, out);
      } else {
        put_grey(to_byte(load_be16(row)), channels, out);
      }
    }
    return;
  }
  if (is_coloured) {
    for (int64_t x = 0; x < width; ++x, row += count, out += step) {
      put_rgb(row, channels, out);
    }
    return;
  }
  if (bit_depth == 8 && colour != Colour::palette) {
    for (int64_t x = 0; x < width; ++x, row += count, out += step) {
      put_grey(row[0], channels, out);
    }
    return;
  }
  // A palette, or grey of less than a byte: the first pixel in the high bits.
  const int mask = (1 << bit_depth) - 1;
  for (int64_t x = 0; x < width; ++x, out += step) {
    const int64_t bit = x * bit_depth;
    const int value = row[bit / 8] >> (8 - bit_depth - bit % 8) & mask;
    if (colour == Colour::palette) {
      put_rgb(palette.data() + value * 3, channels, out);
    } else {
      put_grey(static_cast<uint8_t>(value * 255 / mask), channels, out);
    }
  }
}

}  // namespace tern
