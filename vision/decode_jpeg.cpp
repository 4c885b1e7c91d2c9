#include "tern/vision/decode_jpeg.h"

#include <memory>
#include <string>
#include <turbojpeg.h>

#include "tern/data/formats/error.h"
#include "tern/vision/scratch_buffer.h"

namespace tern {
namespace {

struct DestroyHandle {
  void operator()(void* handle) const { tjDestroy(handle); }
};

tjhandle decompressor(std::string_view path) {
  static thread_local std::unique_ptr<void, DestroyHandle> handle;
  if (!handle) {
    handle.reset(tjInitDecompress());
  }
  if (!handle) {
    throw DataError(
        std::string(path),
        "cannot be decoded: libjpeg-turbo has no memory.");
  }
  return handle.get();
}

[[noreturn]] void fail(std::string_view path, const std::string& reason) {
  const bool is_short = reason.find("remature end") != std::string::npos;
  throw DataError(
      std::string(path),
      std::string(is_short ? "is truncated" : "is a damaged JPEG file") +
          " (libjpeg: " + reason +
          "). Copy the file again, remove it, or set lenient to take what "
          "there is.");
}

/// Adobe's CMYK is inverted, so that each value already is a brightness.
void cmyk_to_pixels(
    const uint8_t* cmyk,
    int64_t count,
    int64_t channels,
    uint8_t* pixels) {
  for (int64_t i = 0; i < count; ++i, cmyk += 4, pixels += channels) {
    uint32_t rgb[3];
    for (int c = 0; c < 3; ++c) {
      rgb[c] = (cmyk[c] * cmyk[3] + 127) / 255;
    }
    if (channels == 1) {
      pixels[0] = static_cast<uint8_t>(
          (rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + 16384) >> 15);
    } else {
      for (int c = 0; c < 3; ++c) {
        pixels[c] = static_cast<uint8_t>(rgb[c]);
      }
    }
  }
}

}  // namespace

ImageSize jpeg_scaled_size(ImageSize stored, ImageSize wanted) {
  ImageSize best = stored;
  for (const int denominator : {2, 4, 8}) {
    const ImageSize scaled = {
        (stored.height + denominator - 1) / denominator,
        (stored.width + denominator - 1) / denominator};
    if (scaled.height < wanted.height || scaled.width < wanted.width) {
      break;
    }
    best = scaled;
  }
  return best;
}

void decode_jpeg(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    ImageSize size,
    int64_t channels,
    bool lenient,
    uint8_t* pixels) {
  const tjhandle handle = decompressor(path);
  const bool is_cmyk = header.channels == 4;
  static thread_local ScratchBuffer cmyk;
  uint8_t* target = is_cmyk ? cmyk.get(size.height * size.width * 4) : pixels;
  const int format = is_cmyk ? TJPF_CMYK : channels == 1 ? TJPF_GRAY : TJPF_RGB;
  // A progressive file of a few kilobytes can otherwise keep a core busy for
  // minutes.
  constexpr int kFlags = TJFLAG_LIMITSCANS;
  const int failed = tjDecompress2(
      handle,
      bytes.data(),
      bytes.size(),
      target,
      static_cast<int>(size.width),
      /*pitch=*/0,
      static_cast<int>(size.height),
      format,
      kFlags);
  if (failed != 0 && !(lenient && tjGetErrorCode(handle) == TJERR_WARNING)) {
    fail(path, tjGetErrorStr2(handle));
  }
  if (is_cmyk) {
    cmyk_to_pixels(target, size.height * size.width, channels, pixels);
  }
}

}  // namespace tern
