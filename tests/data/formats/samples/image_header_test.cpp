#include "tern/data/formats/samples/image_header.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::image_header_test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Bytes text(const std::string& characters) {
  return {characters.begin(), characters.end()};
}

Bytes be16(uint32_t value) {
  return {static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
}

Bytes be32(uint32_t value) {
  return be16(value >> 16) + be16(value);
}

Bytes le16(uint32_t value) {
  return {static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8)};
}

Bytes le32(uint32_t value) {
  return le16(value) + le16(value >> 16);
}

// An EXIF block with a single tag, Orientation, of type SHORT.
Bytes exif(uint32_t orientation, bool big_endian = false) {
  return big_endian
             ? text("MM") + be16(42) + be32(8) + be16(1) + be16(274) + be16(3) +
                   be32(1) + be16(orientation) + be16(0) + be32(0)
             : text("II") + le16(42) + le32(8) + le16(1) + le16(274) + le16(3) +
                   le32(1) + le16(orientation) + le16(0) + le32(0);
}

Bytes jpeg_segment(uint8_t marker, const Bytes& content) {
  return Bytes{0xff, marker} + be16(static_cast<uint32_t>(content.size() + 2)) +
         content;
}

Bytes jpeg(uint32_t height, uint32_t width, const Bytes& before = {}) {
  return Bytes{0xff, 0xd8} + before +
         jpeg_segment(0xc0, Bytes{8} + be16(height) + be16(width) + Bytes{3});
}

Bytes png_chunk(const std::string& type, const Bytes& content) {
  return be32(static_cast<uint32_t>(content.size())) + text(type) + content +
         be32(0);
}

Bytes png(uint32_t width, uint32_t height, const Bytes& after = {}) {
  return Bytes{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'} +
         png_chunk("IHDR", be32(width) + be32(height) + Bytes{16, 2, 0, 0, 0}) +
         after;
}

Bytes webp(const std::string& type, const Bytes& content) {
  const Bytes chunk =
      text(type) + le32(static_cast<uint32_t>(content.size())) + content;
  return text("RIFF") + le32(static_cast<uint32_t>(chunk.size() + 4)) +
         text("WEBP") + chunk;
}

Bytes bmp(int32_t width, int32_t height, int bits, size_t pixel_bytes) {
  return text("BM") + le32(0) + le32(0) + le32(54) + le32(40) +
         le32(static_cast<uint32_t>(width)) +
         le32(static_cast<uint32_t>(height)) + le16(1) + le16(bits) +
         Bytes(24) + Bytes(pixel_bytes);
}

Bytes tiff_tag(uint32_t tag, uint32_t type, uint32_t count, uint32_t value) {
  return le16(tag) + le16(type) + le32(count) + le32(value);
}

/// An LZW image with a single strip of one byte, the last byte of the file.
Bytes tiff(const Bytes& more_tags = {}) {
  const auto tags = static_cast<uint32_t>(5 + more_tags.size() / 12);
  return text("II") + le16(42) + le32(8) + le16(tags) +
         tiff_tag(256, 4, 1, 70000) + tiff_tag(257, 3, 1, 30) +
         tiff_tag(259, 3, 1, 5) + tiff_tag(273, 4, 1, 14 + 12 * tags) +
         tiff_tag(279, 3, 1, 1) + more_tags + le32(0) + Bytes{0};
}

std::string error_for(const Bytes& bytes, int64_t max_pixels = kMaxPixels) {
  return error_of<DataError>(
      [&] { read_image_header(bytes, "cat.jpg", max_pixels); });
}

TEST(ImageHeader, ReadsTheSizeOfAJpeg) {
  const ImageHeader header = read_image_header(jpeg(300, 400));
  EXPECT_EQ(header.format, ImageFormat::jpeg);
  EXPECT_EQ(header.height, 300);
  EXPECT_EQ(header.width, 400);
  EXPECT_EQ(header.channels, 3);
  EXPECT_EQ(header.orientation, 1);
}

TEST(ImageHeader, SkipsFillBytesAndOtherSegmentsOfAJpeg) {
  const Bytes before = jpeg_segment(0xe0, text("JFIF")) + Bytes{0xff, 0xff} +
                       jpeg_segment(0xc4, Bytes(30));
  EXPECT_EQ(read_image_header(jpeg(5, 7, before)).width, 7);
}

TEST(ImageHeader, ReadsTheSizeOfAPng) {
  const ImageHeader header = read_image_header(png(28, 29));
  EXPECT_EQ(header.format, ImageFormat::png);
  EXPECT_EQ(header.width, 28);
  EXPECT_EQ(header.height, 29);
  EXPECT_EQ(header.channels, 3);
}

TEST(ImageHeader, ReadsTheSizeOfEachKindOfWebp) {
  const ImageHeader lossy = read_image_header(
      webp("VP8 ", Bytes{0, 0, 0, 0x9d, 1, 0x2a} + le16(640) + le16(480)));
  EXPECT_EQ(lossy.width, 640);
  EXPECT_EQ(lossy.height, 480);
  const ImageHeader lossless =
      read_image_header(webp("VP8L", Bytes{0x2f} + le32(639 | 479 << 14)));
  EXPECT_EQ(lossless.width, 640);
  EXPECT_EQ(lossless.height, 480);
  const ImageHeader extended = read_image_header(
      webp("VP8X", Bytes{16, 0, 0, 0} + Bytes{0x7f, 2, 0} + Bytes{0xdf, 1, 0}));
  EXPECT_EQ(extended.width, 640);
  EXPECT_EQ(extended.height, 480);
  EXPECT_EQ(extended.channels, 4);
}

TEST(ImageHeader, ReadsTheSizeOfBottomUpAndTopDownBmps) {
  EXPECT_EQ(read_image_header(bmp(5, 3, 24, 48)).height, 3);
  EXPECT_EQ(read_image_header(bmp(5, -3, 24, 48)).height, 3);
}

TEST(ImageHeader, ReadsTheSizeOfATiff) {
  const ImageHeader header = read_image_header(tiff(tiff_tag(274, 3, 1, 6)));
  EXPECT_EQ(header.width, 70000);
  EXPECT_EQ(header.height, 30);
  EXPECT_EQ(header.orientation, 6);
}

TEST(ImageHeader, ReadsTheSizeOfAGif) {
  const ImageHeader header =
      read_image_header(text("GIF89a") + le16(12) + le16(34));
  EXPECT_EQ(header.format, ImageFormat::gif);
  EXPECT_EQ(header.width, 12);
  EXPECT_EQ(header.height, 34);
}

TEST(ImageHeader, ReadsTheOrientationInEitherByteOrder) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      const Bytes block = exif(orientation, big_endian);
      const Bytes app1 = jpeg_segment(0xe1, text("Exif") + be16(0) + block);
      EXPECT_EQ(read_image_header(jpeg(1, 1, app1)).orientation, orientation);
      EXPECT_EQ(
          read_image_header(png(1, 1, png_chunk("eXIf", block))).orientation,
          orientation);
    }
  }
}

TEST(ImageHeader, TreatsADamagedOrientationAsUpright) {
  EXPECT_EQ(exif_orientation(exif(0)), 1);
  EXPECT_EQ(exif_orientation(exif(9)), 1);
  EXPECT_EQ(exif_orientation(text("garbage, no EXIF")), 1);
  Bytes elsewhere = exif(6);
  elsewhere[14] = 200;  // 200 values at a position outside the block
  EXPECT_EQ(exif_orientation(elsewhere), 1);
  const Bytes whole = exif(6);
  for (size_t size = 0; size < 20; ++size) {
    EXPECT_EQ(exif_orientation({whole.data(), size}), 1) << size;
  }
}

TEST(ImageHeader, ReportsTheFirstBytesOfAFileThatIsNotAnImage) {
  const std::string error = error_for(text("<html>"));
  EXPECT_NE(error.find("cat.jpg: is not an image"), std::string::npos) << error;
  EXPECT_NE(error.find("3c68746d6c3e"), std::string::npos) << error;
  EXPECT_NE(error.find("convert or remove"), std::string::npos) << error;
  EXPECT_NE(error_for({}).find("is empty"), std::string::npos);
}

TEST(ImageHeader, RejectsMorePixelsThanAllowed) {
  const std::string error = error_for(jpeg(65000, 65000));
  EXPECT_NE(error.find("65000 x 65000"), std::string::npos) << error;
  EXPECT_NE(error.find("178956970"), std::string::npos) << error;
  EXPECT_NE(error.find("max_pixels"), std::string::npos) << error;
  EXPECT_NE(
      error_for(png(UINT32_MAX, UINT32_MAX)).find("more than the limit"),
      std::string::npos);
  EXPECT_NE(error_for(png(10, 11), 109).find("more than"), std::string::npos);
  EXPECT_NO_THROW(read_image_header(png(10, 11), "", 110));
}

TEST(ImageHeader, RejectsASizeOfZero) {
  EXPECT_NE(error_for(jpeg(0, 10)).find("its size is"), std::string::npos);
  EXPECT_NE(error_for(png(10, 0)).find("its size is"), std::string::npos);
  EXPECT_NE(error_for(bmp(-5, 3, 24, 48)).find("size"), std::string::npos);
}

TEST(ImageHeader, DetectsEveryTruncationOfAHeader) {
  const Bytes images[] = {
      jpeg(300, 400),
      Bytes(png(28, 28)),
      webp("VP8L", Bytes{0x2f} + le32(639 | 479 << 14)),
      bmp(5, 3, 24, 48),
      tiff(),
      text("GIF89a") + le16(12) + le16(34)};
  for (const Bytes& image : images) {
    for (size_t size = 0; size < image.size(); ++size) {
      EXPECT_THROW(read_image_header({image.data(), size}), DataError)
          << image[0] << " truncated to " << size;
    }
  }
}

TEST(ImageHeader, RejectsFloatingPointAndAnimatedImages) {
  EXPECT_NE(
      error_for(tiff(tiff_tag(339, 3, 1, 3))).find("floating-point"),
      std::string::npos);
  EXPECT_NE(
      error_for(webp("VP8X", Bytes{2, 0, 0, 0} + Bytes(6))).find("animated"),
      std::string::npos);
}

TEST(ImageHeader, DetectsATiffThatEndsBeforeItsPixels) {
  EXPECT_NO_THROW(read_image_header(tiff()));
  Bytes cut = tiff();
  cut.pop_back();
  EXPECT_NE(error_for(cut).find("cat.jpg: is truncated"), std::string::npos);
  // Three BitsPerSample values at a position beyond the file.
  const std::string error = error_for(tiff(tiff_tag(258, 3, 3, 5000)));
  EXPECT_NE(error.find("cat.jpg: is truncated"), std::string::npos) << error;
}

// Each of 30 rows has 3 bytes; strips have 10 rows.
Bytes tiff_of_strips(
    uint32_t strips,
    const std::vector<uint32_t>& sizes,
    const Bytes& more_tags = {}) {
  const auto tags = static_cast<uint32_t>(
      4 + (sizes.empty() ? 0 : 1) + more_tags.size() / 12);
  const uint32_t behind = 14 + 12 * tags;
  const auto size_count = static_cast<uint32_t>(sizes.size());
  Bytes values;
  for (uint32_t i = 0; i < strips; ++i) {
    values = values + le32(behind + 4 * (strips + size_count) + 30 * i);
  }
  for (const uint32_t size : sizes) values = values + le32(size);
  Bytes tag_bytes = tiff_tag(256, 3, 1, 24) + tiff_tag(257, 3, 1, 30) +
                    tiff_tag(278, 3, 1, 10) + tiff_tag(273, 4, strips, behind);
  if (!sizes.empty()) {
    tag_bytes = tag_bytes + tiff_tag(279, 4, size_count, behind + 4 * strips);
  }
  return text("II") + le16(42) + le32(8) + le16(tags) + tag_bytes + more_tags +
         le32(0) + values + Bytes(90);
}

TEST(ImageHeader, RejectsATiffWhoseTagsContradictItsPixels) {
  EXPECT_EQ(read_image_header(tiff_of_strips(3, {30, 30, 30})).width, 24);
  EXPECT_NE(
      error_for(tiff_of_strips(2, {30, 30})).find("lists 2 strips or tiles"),
      std::string::npos);
  EXPECT_NE(
      error_for(tiff_of_strips(3, {30, 30})).find("the byte counts"),
      std::string::npos);
  EXPECT_NE(
      error_for(tiff_of_strips(3, {30, 29, 30})).find("shorter than its rows"),
      std::string::npos);
  EXPECT_NE(
      error_for(tiff_of_strips(3, {30, 30, 31})).find("truncated"),
      std::string::npos);
  // Two planes need twice as many strips.
  EXPECT_NE(
      error_for(tiff_of_strips(
                    3,
                    {30, 30, 30},
                    tiff_tag(277, 3, 1, 2) + tiff_tag(284, 3, 1, 2)))
          .find("2 x 3"),
      std::string::npos);
}

TEST(ImageHeader, HandlesEveryFlippedBit) {
  const Bytes app1 = jpeg_segment(0xe1, text("Exif") + be16(0) + exif(6));
  const Bytes images[] = {
      jpeg(300, 400, app1),
      png(28, 28, png_chunk("eXIf", exif(6))),
      webp("VP8X", Bytes{0, 0, 0, 0} + Bytes(6) + text("EXIF") + exif(3)),
      bmp(5, 3, 24, 48),
      tiff()};
  for (const Bytes& image : images) {
    for (size_t bit = 0; bit < image.size() * 8; ++bit) {
      Bytes flipped = image;
      flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      try {
        const ImageHeader header = read_image_header(flipped);
        EXPECT_GT(header.width, 0);
        EXPECT_LE(header.width * header.height, kMaxPixels);
        EXPECT_GE(header.orientation, 1);
        EXPECT_LE(header.orientation, 8);
      } catch (const DataError&) {
        // a rejected file is fine too
      }
    }
  }
}

}  // namespace
}  // namespace tern::image_header_test
