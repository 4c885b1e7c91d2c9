#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <jpeglib.h>
#include <string>

#include "tern/data/formats/error.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/decoders.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "Tern needs libjpeg-turbo, not another libjpeg."
#endif

namespace tern {
namespace {

/// Returns true if the bytes contain the end marker, which cannot occur within
/// compressed pixels.
bool has_end_marker(const uint8_t* begin, const uint8_t* end) {
  if (end - begin >= 2 && end[-2] == 0xff && end[-1] == 0xd9) return true;
  while (begin < end) {
    begin = static_cast<const uint8_t*>(
        std::memchr(begin, 0xff, static_cast<size_t>(end - begin)));
    if (begin == nullptr || end - begin < 2) return false;
    if (begin[1] == 0xd9) return true;
    ++begin;
  }
  return false;
}

/// A libjpeg decompressor that a thread reuses. Its error handlers store the
/// first message instead of printing it, and jump back instead of ending the
/// program.
struct JpegDecoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf give_up{};
  char message[JMSG_LENGTH_MAX] = "";

  JpegDecoder() {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    errors.output_message = keep_first_message;
    info.client_data = this;
    if (setjmp(give_up) != 0) throw std::bad_alloc();
    jpeg_create_decompress(&info);
    progress.progress_monitor = on_progress;
    info.progress = &progress;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Starts decoding. No object with a destructor may be created in `start` and
  /// `read`, because an error jumps back to `setjmp`.
  bool
  start(std::span<const uint8_t> bytes, int denominator, J_COLOR_SPACE colors) {
    message[0] = 0;
    if (setjmp(give_up) != 0) return false;
    jpeg_abort_decompress(&info);
    jpeg_mem_src(&info, bytes.data(), bytes.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = colors;
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(denominator);
    jpeg_start_decompress(&info);
    return true;
  }

  bool read(ImageRegion wanted, ImageRegion* decoded, uint8_t* pixels) {
    if (setjmp(give_up) != 0) return false;
    *decoded = wanted;
    if (wanted.width != info.output_width) {
      auto left = static_cast<JDIMENSION>(wanted.left);
      auto width = static_cast<JDIMENSION>(wanted.width);
      jpeg_crop_scanline(&info, &left, &width);
      decoded->left = left;
      decoded->width = width;
    }
    if (wanted.top > 0) {
      jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(wanted.top));
    }
    const size_t stride = static_cast<size_t>(decoded->width) *
                          static_cast<size_t>(info.output_components);
    const auto bottom = static_cast<JDIMENSION>(wanted.top + wanted.height);
    const auto top = static_cast<JDIMENSION>(wanted.top);
    while (info.output_scanline < bottom) {
      JSAMPROW rows[4];
      for (JDIMENSION i = 0; i < 4; ++i) {
        rows[i] = pixels + stride * (info.output_scanline - top + i);
      }
      jpeg_read_scanlines(
          &info,
          rows,
          std::min<JDIMENSION>(4, bottom - info.output_scanline));
    }
    if (bottom == info.output_height) jpeg_finish_decompress(&info);
    return true;
  }

  /// True if the end marker was already read or occurs before `end`.
  bool has_end(const uint8_t* end) {
    // libjpeg may have read beyond the last requested pixels.
    return jpeg_input_complete(&info) != 0 || info.unread_marker == JPEG_EOI ||
           has_end_marker(info.src->next_input_byte, end);
  }

  static JpegDecoder& decoder_of(j_common_ptr info) {
    return *static_cast<JpegDecoder*>(info->client_data);
  }

  static void keep_first_message(j_common_ptr info) {
    JpegDecoder& decoder = decoder_of(info);
    if (decoder.message[0] == 0) {
      info->err->format_message(info, decoder.message);
    }
  }

  [[noreturn]] static void on_error(j_common_ptr info) {
    keep_first_message(info);
    std::longjmp(decoder_of(info).give_up, 1);
  }

  static void on_message(j_common_ptr info, int level) {
    if (level < 0) {  // a warning: the file is damaged
      keep_first_message(info);
      ++info->err->num_warnings;
    }
  }

  /// Limits the number of scans. Otherwise a progressive file of a few
  /// kilobytes can keep a core busy for minutes.
  static void on_progress(j_common_ptr info) {
    constexpr int kMostScans = 500;
    JpegDecoder& decoder = decoder_of(info);
    if (info->is_decompressor != 0 &&
        decoder.info.input_scan_number > kMostScans) {
      std::snprintf(
          decoder.message,
          sizeof decoder.message,
          "Progressive JPEG image has more than %d scans",
          kMostScans);
      std::longjmp(decoder.give_up, 1);
    }
  }
};

[[noreturn]] void fail(std::string_view path, const std::string& reason) {
  const bool is_short = reason.find("remature end") != std::string::npos;
  throw DataError(
      std::string(path),
      std::string(is_short ? "is truncated" : "is a damaged JPEG file") +
          " (libjpeg: " + reason +
          "). Replace it, remove it, or set lenient to decode the "
          "readable part.");
}

/// Converts CMYK to gray or RGB. Adobe's CMYK is inverted, so each value is
/// already a brightness.
void cmyk_to_pixels(
    const uint8_t* cmyk,
    int64_t count,
    int64_t channels,
    uint8_t* pixels) {
  for (int64_t i = 0; i < count; ++i, cmyk += 4, pixels += channels) {
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
    }
    if (channels == 1) {
      pixels[0] = gray_of(rgb);
    } else {
      std::copy_n(rgb, 3, pixels);
    }
  }
}

/// \param colors  [count, 4]: red, green, blue, and a byte that is not used.
TERN_CPU_LOOP void
to_gray(const uint8_t* colors, int64_t count, uint8_t* gray) {
  for (int64_t i = 0; i < count; ++i) gray[i] = gray_of(colors + 4 * i);
}

/// Decodes a region of a JPEG, see `decode_jpeg_region`.
/// \param memory  Function (bytes) -> uint8_t* that allocates the decoded
///                region, which is a few columns wider than `wanted`.
template <class Memory>
ImageRegion decode_part(
    const EncodedImage& file,
    int denominator,
    ImageRegion wanted,
    const Memory& memory) {
  static thread_local JpegDecoder decoder;
  static thread_local ScratchBuffer colors;
  const int64_t channels = file.options().channels;
  // Computes the gray of a color image from its clamped RGB colors, as Pillow
  // does. The luminance stored in the file differs for saturated colors.
  const int stored = file.header().channels;
  const bool is_converted = stored == 4 || (channels == 1 && stored == 3);
  const J_COLOR_SPACE color_space = stored == 4     ? JCS_CMYK
                                    : is_converted  ? JCS_EXT_RGBX
                                    : channels == 1 ? JCS_GRAYSCALE
                                                    : JCS_RGB;
  if (!decoder.start(file.bytes(), denominator, color_space)) {
    fail(file.path(), decoder.message);
  }
  const ImageSize size = jpeg_scaled_size(file.stored_size(), denominator);
  if (decoder.info.output_height != size.height ||
      decoder.info.output_width != size.width) {
    fail(file.path(), "its size differs from its first header");
  }
  // A block is at most 8 x 4 pixels wide, and the region may have one on each
  // side.
  constexpr int64_t kSlack = 64;
  const int64_t width = std::min(wanted.width + kSlack, size.width);
  const int64_t count = wanted.height * width;
  uint8_t* pixels = memory(count * channels);
  ImageRegion decoded;
  uint8_t* target = is_converted ? colors.get(count * 4) : pixels;
  const bool is_read = decoder.read(wanted, &decoded, target);
  const bool is_whole =
      is_read && decoder.errors.num_warnings == 0 &&
      decoder.has_end(file.bytes().data() + file.bytes().size());
  jpeg_abort_decompress(&decoder.info);  // frees its memory
  if (!is_read || (!is_whole && !file.options().lenient)) {
    const bool has_reason = decoder.message[0] != 0;
    fail(
        file.path(),
        has_reason ? decoder.message : "Premature end of JPEG file");
  }
  const int64_t decoded_count = decoded.height * decoded.width;
  if (stored == 4) {
    cmyk_to_pixels(target, decoded_count, channels, pixels);
  } else if (is_converted) {
    on_cpu_isa<to_gray>(target, decoded_count, pixels);
  }
  return decoded;
}

}  // namespace

ImageSize jpeg_scaled_size(ImageSize stored, int denominator) {
  return {
      (stored.height + denominator - 1) / denominator,
      (stored.width + denominator - 1) / denominator};
}

ImageRegion decode_jpeg_region(
    const EncodedImage& file,
    int denominator,
    ImageRegion wanted,
    ScratchBuffer& buffer) {
  return decode_part(file, denominator, wanted, [&](int64_t size) {
    return buffer.get(size);
  });
}

void decode_jpeg(const EncodedImage& file, uint8_t* pixels) {
  const auto [height, width] = file.stored_size();
  decode_part(file, 1, {0, 0, height, width}, [&](int64_t) { return pixels; });
}

}  // namespace tern
