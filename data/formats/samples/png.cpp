#include "tern/data/formats/samples/png.h"

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <zlib.h>

namespace tern {

namespace {

void append_uint32(std::vector<uint8_t>& out, uint64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<uint8_t>(value >> shift));
  }
}

// A chunk consists of its length, its name, its body, and a CRC-32 over name
// and body.
void append_chunk(
    std::vector<uint8_t>& out,
    std::string_view name,
    std::span<const uint8_t> body) {
  append_uint32(out, body.size());
  const size_t start = out.size();
  out.insert(out.end(), name.begin(), name.end());
  out.insert(out.end(), body.begin(), body.end());
  append_uint32(
      out,
      crc32(0, out.data() + start, static_cast<uInt>(out.size() - start)));
}

std::vector<uint8_t> deflated(std::span<const uint8_t> bytes) {
  uLongf size = compressBound(bytes.size());
  std::vector<uint8_t> out(size);
  if (compress2(out.data(), &size, bytes.data(), bytes.size(), 6) != Z_OK) {
    throw std::bad_alloc();
  }
  out.resize(size);
  return out;
}

}  // namespace

std::vector<uint8_t> encode_png(
    std::span<const uint8_t> pixels,
    int64_t width,
    int64_t height,
    int64_t channels) {
  constexpr int64_t kMaxSide = 1 << 15;
  const bool has_size = width > 0 && height > 0 && width <= kMaxSide &&
                        height <= kMaxSide && (channels == 1 || channels == 3);
  if (!has_size ||
      static_cast<int64_t>(pixels.size()) != width * height * channels) {
    throw std::invalid_argument(
        "[encode_png] got " + std::to_string(pixels.size()) +
        " bytes for width " + std::to_string(width) + ", height " +
        std::to_string(height) + ", channels " + std::to_string(channels) +
        "; expected width * height * channels bytes, a width and height from 1 "
        "to 32768, and 1 or 3 channels.");
  }

  // Rows are unfiltered; the first byte of each row says so.
  const auto row_bytes = static_cast<size_t>(width * channels);
  std::vector<uint8_t> rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(height));
  for (size_t start = 0; start < pixels.size(); start += row_bytes) {
    rows.push_back(0);
    const auto row = pixels.subspan(start, row_bytes);
    rows.insert(rows.end(), row.begin(), row.end());
  }

  std::vector<uint8_t> header;
  append_uint32(header, static_cast<uint64_t>(width));
  append_uint32(header, static_cast<uint64_t>(height));
  const uint8_t color_type = channels == 1 ? 0 : 2;
  header.insert(header.end(), {8, color_type, 0, 0, 0});

  std::vector<uint8_t> png(kPngSignature.begin(), kPngSignature.end());
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", deflated(rows));
  append_chunk(png, "IEND", {});
  return png;
}

}  // namespace tern
