#include "tern/vision/decode_png.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <libdeflate.h>
#include <memory>
#include <string>

#include "tern/data/formats/error.h"
#include "tern/data/formats/png_chunks.h"
#include "tern/vision/png_rows.h"
#include "tern/vision/scratch_buffer.h"

namespace tern {
namespace {

[[noreturn]] void fail(std::string_view path, const std::string& what) {
  throw DataError(
      std::string(path),
      "is a damaged PNG file: " + what + ". Copy the file again or remove it.");
}

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* decompressor) const {
    libdeflate_free_decompressor(decompressor);
  }
};

libdeflate_decompressor* decompressor() {
  static thread_local std::unique_ptr<libdeflate_decompressor, FreeDecompressor>
      instance(libdeflate_alloc_decompressor());
  if (!instance) {
    throw std::bad_alloc();
  }
  return instance.get();
}

/// What the chunks say: the kind of the pixels, and where they are.
struct PngContent {
  PngPixels pixels;
  bool interlaced = false;
  std::span<const uint8_t> compressed;
};

PngPixels::Colour
colour_of(uint8_t type, uint8_t bit_depth, std::string_view path) {
  using Colour = PngPixels::Colour;
  const bool is_byte_deep = bit_depth == 8 || bit_depth == 16;
  const bool is_shallow = bit_depth == 1 || bit_depth == 2 || bit_depth == 4;
  switch (type) {
    case 0:
      if (is_byte_deep || is_shallow) {
        return Colour::grey;
      }
      break;
    case 3:
      if (bit_depth == 8 || is_shallow) {
        return Colour::palette;
      }
      break;
    case 2:
    case 4:
    case 6:
      if (is_byte_deep) {
        return type == 2   ? Colour::rgb
               : type == 4 ? Colour::grey_alpha
                           : Colour::rgb_alpha;
      }
      break;
    default:
      break;
  }
  fail(
      path,
      "there is no colour type " + std::to_string(type) + " with " +
          std::to_string(bit_depth) + " bits");
}

void read_ihdr(
    std::span<const uint8_t> ihdr,
    std::string_view path,
    PngContent& content) {
  if (ihdr.size() != 13) {
    fail(path, "its IHDR chunk has a wrong length");
  }
  content.pixels.bit_depth = ihdr[8];
  content.pixels.colour = colour_of(ihdr[9], ihdr[8], path);
  if (ihdr[10] != 0 || ihdr[11] != 0 || ihdr[12] > 1) {
    fail(path, "its compression, filter or interlace method is unknown");
  }
  content.interlaced = ihdr[12] == 1;
}

/// Checks and sorts the chunks. More than one IDAT is put together in a
/// buffer of the thread.
PngContent read_chunks(std::span<const uint8_t> bytes, std::string_view path) {
  static thread_local ScratchBuffer joined;
  PngContent content;
  bool has_idat = false;
  size_t joined_size = 0;
  PngChunks chunks(bytes);
  while (const std::optional<PngChunk> chunk = chunks.next()) {
    if (!chunk->is_critical()) {
      continue;
    }
    if (libdeflate_crc32(0, chunk->checked.data(), chunk->checked.size()) !=
        chunk->crc) {
      fail(path, "the checksum of a chunk is wrong");
    }
    switch (chunk->type) {
      case png_type("IHDR"):
        read_ihdr(chunk->data, path, content);
        break;
      case png_type("PLTE"):
        if (chunk->data.size() > content.pixels.palette.size()) {
          fail(path, "its palette has more than 256 colours");
        }
        std::memcpy(
            content.pixels.palette.data(),
            chunk->data.data(),
            chunk->data.size());
        content.pixels.palette_size = chunk->data.size() / 3;
        break;
      case png_type("IDAT"):
        if (!has_idat) {
          content.compressed = chunk->data;
        } else {
          if (joined_size == 0) {
            // All that can follow fits: no IDAT is larger than the file.
            uint8_t* start = joined.get(bytes.size());
            joined_size = content.compressed.size();
            std::memcpy(start, content.compressed.data(), joined_size);
            content.compressed = {start, joined_size};
          }
          uint8_t* start = const_cast<uint8_t*>(content.compressed.data());
          std::memcpy(
              start + joined_size,
              chunk->data.data(),
              chunk->data.size());
          joined_size += chunk->data.size();
          content.compressed = {start, joined_size};
        }
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
        "is truncated: the PNG file ends before its IEND chunk. Copy the file "
        "again or remove it.");
  }
  if (!has_idat) {
    fail(path, "it has no pixels (no IDAT chunk)");
  }
  if (content.pixels.colour == PngPixels::Colour::palette &&
      content.pixels.palette_size == 0) {
    fail(path, "it has no palette");
  }
  return content;
}

/// Makes every number of a palette, or of a grey image, mean itself.
void stand_for_themselves(PngPixels& pixels, std::string_view path) {
  const bool is_grey = pixels.colour == PngPixels::Colour::grey;
  if (pixels.bit_depth > 8 ||
      (!is_grey && pixels.colour != PngPixels::Colour::palette)) {
    throw DataError(
        std::string(path),
        "holds no class numbers: it has colours or 16 bits. Save it as a PNG "
        "of 8 bits, grey or with a palette.");
  }
  if (is_grey && pixels.bit_depth == 8) {
    return;
  }
  pixels.colour = PngPixels::Colour::palette;
  for (size_t i = 0; i < pixels.palette.size(); ++i) {
    pixels.palette[i] = static_cast<uint8_t>(i / 3);
  }
}

/// Every so many pixels in each direction, from an offset on.
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

/// Undoes the compression. \return `size` bytes in a buffer of the thread.
uint8_t* inflate(
    std::span<const uint8_t> compressed,
    size_t size,
    std::string_view path) {
  static thread_local ScratchBuffer buffer;
  // Deflate makes at most 1032 bytes of one (zlib's technical notes): what
  // cannot be there is not allocated for.
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
      fail(path, "its compressed data are wrong");
  }
  if (written != size) {
    fail(path, "it has less data than its size needs");
  }
  return rows;
}

}  // namespace

void decode_png(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    int64_t channels,
    bool indices,
    uint8_t* pixels) {
  PngContent content = read_chunks(bytes, path);
  if (indices) {
    stand_for_themselves(content.pixels, path);
  }
  const std::span<const Pass> passes =
      content.interlaced ? std::span<const Pass>(kAdam7) : kWholeImage;
  size_t size = 0;
  for (const Pass& pass : passes) {
    const int64_t width = pass.width(header.width);
    if (width > 0) {
      size +=
          (1 + content.pixels.row_bytes(width)) * pass.height(header.height);
    }
  }
  uint8_t* rows = inflate(content.compressed, size, path);
  for (const Pass& pass : passes) {
    const int64_t width = pass.width(header.width);
    const int64_t height = pass.height(header.height);
    if (width <= 0) {
      continue;
    }
    const size_t row_bytes = content.pixels.row_bytes(width);
    const uint8_t* above = nullptr;
    for (int64_t row = 0; row < height; ++row, rows += 1 + row_bytes) {
      if (!undo_png_filter(
              rows[0],
              rows + 1,
              above,
              row_bytes,
              content.pixels.bytes_per_pixel())) {
        fail(path, "a row has an unknown filter");
      }
      above = rows + 1;
      const int64_t y = pass.y + row * pass.dy;
      content.pixels.write_row(
          rows + 1,
          width,
          channels,
          pixels + (y * header.width + pass.x) * channels,
          pass.dx * channels);
    }
  }
}

}  // namespace tern
