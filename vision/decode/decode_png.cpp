// Tern has its own PNG decoder. cv::imdecode and libspng take 2.8 and 3.2 times
// as long for MNIST's files, and 1.5 times as long for CamVid's: both set up
// zlib for each image, which inflates half as fast as libdeflate. In addition,
// OpenCV prints errors to stderr instead of returning them, and it does not
// return the palette indices that masks consist of. Source: PNG specification,
// third edition.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <libdeflate.h>
#include <memory>
#include <string>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/png.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/decoders.h"

namespace tern {
namespace {

/// The contents of the chunks: the pixel format and the compressed pixels.
struct Png {
  enum class Color { gray = 0, rgb = 2, palette = 3, gray_alpha = 4, rgba = 6 };

  Color color = Color::gray;  // with the file's numbers
  /// Bits per sample: 1, 2, 4, 8 or 16.
  int bit_depth = 8;
  bool interlaced = false, has_palette = false;
  /// RGB, RGB, ...; missing colors are black.
  std::array<uint8_t, 256 * 3> palette{};
  std::span<const uint8_t> compressed;

  int64_t samples() const { return png_channels(static_cast<uint8_t>(color)); }
  /// Returns the bytes of a row of `width` pixels, without the filter byte.
  size_t row_bytes(int64_t width) const {
    return static_cast<size_t>((width * samples() * bit_depth + 7) / 8);
  }
  /// Returns the distance to the left neighbor that filters use.
  size_t bytes_per_pixel() const { return row_bytes(1); }
};

uint8_t paeth(int left, int above, int corner) {
  const int to_left = std::abs(above - corner);
  const int to_above = std::abs(left - corner);
  const int to_corner = std::abs(left + above - 2 * corner);
  if (to_left <= to_above && to_left <= to_corner) {
    return static_cast<uint8_t>(left);
  }
  return static_cast<uint8_t>(to_above <= to_corner ? above : corner);
}

/// Undoes the filters that use the left neighbor. Its distance is a template
/// argument, so that the compiler keeps the neighbors in registers.
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

/// Converts 0..65535 to 0..255: value / 257, rounded.
uint8_t to_byte(uint16_t value) {
  return static_cast<uint8_t>((value * uint32_t{255} + 32895) >> 16);
}

void put_gray(uint8_t value, int64_t channels, uint8_t* out) {
  out[0] = value;
  if (channels == 3) out[1] = out[2] = value;
}

void put_rgb(const uint8_t* rgb, int64_t channels, uint8_t* out) {
  if (channels == 3) {
    std::copy_n(rgb, 3, out);
  } else {
    out[0] = gray_of(rgb);
  }
}

/// Undoes the filter of a row in place.
/// \param above  The previous row with its filter undone; null for the first
///               row.
/// \return  False if the filter does not exist.
bool undo_png_filter(
    uint8_t filter,
    uint8_t* row,
    const uint8_t* above,
    size_t row_bytes,
    size_t bytes_per_pixel) {
  if (filter == 0) return true;
  if (filter > 4) return false;
  if (filter == 2) {
    for (size_t i = 0; above != nullptr && i < row_bytes; ++i) {
      row[i] = static_cast<uint8_t>(row[i] + above[i]);
    }
    return true;
  }
  using Undo = void (*)(uint8_t, uint8_t*, const uint8_t*, size_t);
  constexpr Undo kUndo[] = {
      nullptr,
      undo_left_filter<1>,
      undo_left_filter<2>,
      undo_left_filter<3>,
      undo_left_filter<4>,
      nullptr,
      undo_left_filter<6>,
      nullptr,
      undo_left_filter<8>};
  kUndo[bytes_per_pixel](filter, row, above, row_bytes);
  return true;
}

/// Writes a row as 8-bit gray or RGB.
/// \param row       row_bytes(width) bytes, with filters undone.
/// \param channels  1 or 3.
/// \param out       Address of the first pixel.
/// \param step      Distance to the next pixel in bytes.
void write_row(
    const Png& png,
    const uint8_t* row,
    int64_t width,
    int64_t channels,
    uint8_t* out,
    int64_t step) {
  using Color = Png::Color;
  const Color color = png.color;
  const int bit_depth = png.bit_depth;
  const int64_t count = png.samples();
  const bool is_colored = color == Color::rgb || color == Color::rgba;
  if (color == Color::rgb && bit_depth == 8 && channels == 3 && step == 3) {
    std::memcpy(out, row, static_cast<size_t>(width) * 3);
    return;
  }
  const auto write = [&](int64_t bytes, auto sample) {
    const int64_t pixel = bytes * count;
    if (!is_colored) {
      for (int64_t x = 0; x < width; ++x, row += pixel, out += step) {
        put_gray(sample(row), channels, out);
      }
      return;
    }
    for (int64_t x = 0; x < width; ++x, row += pixel, out += step) {
      const uint8_t rgb[3] = {
          sample(row),
          sample(row + bytes),
          sample(row + 2 * bytes)};
      put_rgb(rgb, channels, out);
    }
  };
  if (bit_depth == 16) {
    write(2, [](const uint8_t* at) { return to_byte(load_be16(at)); });
    return;
  }
  if (bit_depth == 8 && color != Color::palette) {
    write(1, [](const uint8_t* at) { return *at; });
    return;
  }
  // A palette, or gray with less than 8 bits. The first pixel of a byte is in
  // its high bits.
  const int mask = (1 << bit_depth) - 1;
  for (int64_t x = 0; x < width; ++x, out += step) {
    const int64_t bit = x * bit_depth;
    const int value = row[bit / 8] >> (8 - bit_depth - bit % 8) & mask;
    if (color == Color::palette) {
      put_rgb(png.palette.data() + value * 3, channels, out);
    } else {
      put_gray(static_cast<uint8_t>(value * 255 / mask), channels, out);
    }
  }
}

[[noreturn]] void fail(std::string_view path, const std::string& what) {
  throw DataError(
      std::string(path),
      "is a damaged PNG file: " + what + ". Replace it or remove it.");
}

libdeflate_decompressor* decompressor() {
  static thread_local const std::shared_ptr<libdeflate_decompressor> instance(
      libdeflate_alloc_decompressor(),
      libdeflate_free_decompressor);
  if (!instance) throw std::bad_alloc();
  return instance.get();
}

void read_ihdr(std::span<const uint8_t> ihdr, std::string_view path, Png& png) {
  if (ihdr.size() != 13) fail(path, "its IHDR chunk has a wrong length");
  const int bits = ihdr[8], type = ihdr[9];
  const bool is_byte_deep = bits == 8 || bits == 16;
  const bool is_shallow = bits == 1 || bits == 2 || bits == 4;
  const bool is_known =
      type == 0   ? is_byte_deep || is_shallow
      : type == 3 ? bits == 8 || is_shallow
                  : (type == 2 || type == 4 || type == 6) && is_byte_deep;
  if (!is_known) {
    fail(
        path,
        "the color type " + std::to_string(type) + " does not exist with " +
            std::to_string(bits) + " bits");
  }
  png.color = static_cast<Png::Color>(type);
  png.bit_depth = bits;
  if (ihdr[10] != 0 || ihdr[11] != 0 || ihdr[12] > 1) {
    fail(path, "its compression, filter or interlace method is unknown");
  }
  png.interlaced = ihdr[12] == 1;
}

/// Checks and reads the chunks. Concatenates the compressed pixels of all IDAT
/// chunks in a thread-local buffer.
Png read_chunks(std::span<const uint8_t> bytes, std::string_view path) {
  static thread_local ScratchBuffer joined;
  Png png;
  bool has_idat = false;
  // All IDAT chunks together are smaller than the file.
  uint8_t* const start = joined.get(bytes.size());
  size_t size = 0;
  PngChunks chunks(bytes);
  while (const std::optional<PngChunk> chunk = chunks.next()) {
    if (!chunk->is_critical()) continue;
    if (libdeflate_crc32(0, chunk->checked.data(), chunk->checked.size()) !=
        chunk->crc) {
      fail(path, "the checksum of a chunk is wrong");
    }
    switch (chunk->type) {
      case png_type("IHDR"):
        read_ihdr(chunk->data, path, png);
        break;
      case png_type("PLTE"):
        if (chunk->data.size() > png.palette.size()) {
          fail(path, "its palette has more than 256 colors");
        }
        std::copy(chunk->data.begin(), chunk->data.end(), png.palette.begin());
        png.has_palette = chunk->data.size() >= 3;
        break;
      case png_type("IDAT"):
        std::memcpy(start + size, chunk->data.data(), chunk->data.size());
        size += chunk->data.size();
        has_idat = true;
        break;
      case png_type("IEND"):
        break;
      default:
        fail(path, "it has a chunk of an unknown kind");
    }
  }
  if (!chunks.is_complete()) {
    throw DataError(
        std::string(path),
        "is truncated: the PNG file ends before its IEND chunk. Replace it "
        "or remove it.");
  }
  if (!has_idat) fail(path, "it has no pixels (no IDAT chunk)");
  if (png.color == Png::Color::palette && !png.has_palette) {
    fail(path, "it has no palette");
  }
  png.compressed = {start, size};
  return png;
}

/// Sets a palette that maps every stored value to itself.
void stand_for_themselves(Png& png, std::string_view path) {
  const bool is_gray = png.color == Png::Color::gray;
  if (png.bit_depth > 8 || (!is_gray && png.color != Png::Color::palette)) {
    throw DataError(
        std::string(path),
        "contains no class indices: it has colors or 16 bits. Save it as an "
        "8-bit PNG, gray or with a palette.");
  }
  if (is_gray && png.bit_depth == 8) return;
  png.color = Png::Color::palette;
  for (size_t i = 0; i < png.palette.size(); ++i) {
    png.palette[i] = static_cast<uint8_t>(i / 3);
  }
}

/// A pass of an interlaced image: every dx-th and dy-th pixel, starting at (x,
/// y).
struct Pass {
  int64_t x, y, dx, dy;
  int64_t width(int64_t image) const { return (image - x + dx - 1) / dx; }
  int64_t height(int64_t image) const { return (image - y + dy - 1) / dy; }
};

constexpr Pass kWholeImage[] = {{0, 0, 1, 1}};
constexpr Pass kAdam7[] = {
    {0, 0, 8, 8},
    {4, 0, 8, 8},
    {0, 4, 4, 8},
    {2, 0, 4, 4},
    {0, 2, 2, 4},
    {1, 0, 2, 2},
    {0, 1, 1, 2}};

/// Decompresses the pixels. \return `size` bytes in a thread-local buffer.
uint8_t* inflate(
    std::span<const uint8_t> compressed,
    size_t size,
    std::string_view path) {
  static thread_local ScratchBuffer buffer;
  // Deflate expands a byte to at most 1032 bytes (zlib's technical notes), so
  // larger sizes are rejected before memory is allocated.
  constexpr size_t kMaxRatio = 1032;
  if (size / kMaxRatio > compressed.size()) {
    fail(path, "it has less data than its size needs");
  }
  uint8_t* rows = buffer.get(size);
  size_t written = 0;
  switch (libdeflate_zlib_decompress(
      decompressor(),
      compressed.data(),
      compressed.size(),
      rows,
      size,
      &written)) {
    case LIBDEFLATE_SUCCESS:
      break;
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      fail(path, "it has more data than its size needs");
    default:
      fail(path, "its compressed data is invalid");
  }
  if (written != size) fail(path, "it has less data than its size needs");
  return rows;
}

}  // namespace

void decode_png(const EncodedImage& file, uint8_t* pixels) {
  Png png = read_chunks(file.bytes(), file.path());
  if (file.options().indices) stand_for_themselves(png, file.path());
  const auto [image_height, image_width] = file.stored_size();
  const int64_t channels = file.options().channels;
  const std::span<const Pass> passes =
      png.interlaced ? std::span<const Pass>(kAdam7) : kWholeImage;
  size_t size = 0;
  for (const Pass& pass : passes) {
    const int64_t width = pass.width(image_width);
    if (width > 0) {
      size += (1 + png.row_bytes(width)) * pass.height(image_height);
    }
  }
  uint8_t* row = inflate(png.compressed, size, file.path());
  for (const Pass& pass : passes) {
    const int64_t width = pass.width(image_width);
    if (width <= 0) continue;
    const size_t row_bytes = png.row_bytes(width);
    const uint8_t* above = nullptr;
    for (int64_t y = pass.y; y < image_height; y += pass.dy) {
      if (!undo_png_filter(
              row[0],
              row + 1,
              above,
              row_bytes,
              png.bytes_per_pixel())) {
        fail(file.path(), "a row has an unknown filter");
      }
      above = row + 1;
      write_row(
          png,
          above,
          width,
          channels,
          pixels + (y * image_width + pass.x) * channels,
          pass.dx * channels);
      row += 1 + row_bytes;
    }
  }
}

}  // namespace tern
