#include <array>
#include <cstring>
#include <libdeflate.h>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/png.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/decode/decode.h"

namespace tern::decode_png_test {
namespace {

using Bytes = std::vector<uint8_t>;

void put_be32(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<uint8_t>(value >> shift));
  }
}

// A PNG built by hand, for kinds and mistakes that OpenCV does not write.
struct PngBytes {
  Bytes bytes{kPngSignature.begin(), kPngSignature.end()};

  PngBytes& chunk(const std::string& type, const Bytes& content) {
    put_be32(bytes, static_cast<uint32_t>(content.size()));
    const size_t start = bytes.size();
    bytes.insert(bytes.end(), type.begin(), type.end());
    bytes.insert(bytes.end(), content.begin(), content.end());
    put_be32(
        bytes,
        libdeflate_crc32(0, bytes.data() + start, bytes.size() - start));
    return *this;
  }

  PngBytes& header(
      uint32_t width,
      uint32_t height,
      uint8_t bit_depth,
      uint8_t color,
      uint8_t interlace = 0) {
    Bytes content;
    put_be32(content, width);
    put_be32(content, height);
    content.insert(content.end(), {bit_depth, color, 0, 0, interlace});
    return chunk("IHDR", content);
  }

  // \param rows  Filter bytes and pixels, uncompressed.
  PngBytes& pixels(const Bytes& rows) { return chunk("IDAT", zlib(rows)); }

  static Bytes zlib(const Bytes& rows) {
    libdeflate_compressor* compressor = libdeflate_alloc_compressor(6);
    Bytes out(libdeflate_zlib_compress_bound(compressor, rows.size()));
    out.resize(libdeflate_zlib_compress(
        compressor,
        rows.data(),
        rows.size(),
        out.data(),
        out.size()));
    libdeflate_free_compressor(compressor);
    return out;
  }

  Bytes end() { return chunk("IEND", {}).bytes; }
};

Bytes values(const torch::Tensor& image) {
  const auto* data = image.const_data_ptr<uint8_t>();
  return {data, data + image.numel()};
}

std::string error_for(const Bytes& bytes) {
  return error_of<DataError>([&] { decode_image(bytes, "digit.png"); });
}

TEST(DecodePng, EqualsOpenCvForEveryKindThatOpenCvWrites) {
  for (const int type : {CV_8UC1, CV_8UC3, CV_8UC4}) {
    for (const int strategy :
         {cv::IMWRITE_PNG_STRATEGY_DEFAULT,
          cv::IMWRITE_PNG_STRATEGY_FILTERED}) {
      for (const auto& [height, width] :
           {std::pair{1, 1}, {1, 33}, {17, 1}, {28, 28}, {61, 47}}) {
        const Bytes bytes = encode(
            random_image(height, width, type),
            ".png",
            {cv::IMWRITE_PNG_STRATEGY, strategy});
        cv::Mat expected = cv::imdecode(bytes, cv::IMREAD_COLOR);
        const torch::Tensor image = decode_image(bytes);
        ASSERT_EQ(image.sizes(), (std::vector<int64_t>{height, width, 3}));
        for (int y = 0; y < height; ++y) {
          for (int x = 0; x < width; ++x) {
            for (int c = 0; c < 3; ++c) {
              ASSERT_EQ(
                  image[y][x][c].item<int>(),
                  expected.at<cv::Vec3b>(y, x)[2 - c]);
            }
          }
        }
      }
    }
  }
}

TEST(DecodePng, UndoesEveryFilter) {
  // Three gray pixels per row; one row per filter.
  const Bytes rows = {0, 10, 20, 30,  //
                      1, 1,  1,  1,   // left: 1 2 3
                      2, 5,  5,  5,   // above: 6 7 8
                      3, 4,  4,  4,   // average: 7 11 13
                      4, 1,  1,  1};  // Paeth: 8 12 14
  const Bytes bytes = PngBytes().header(3, 5, 8, 0).pixels(rows).end();
  EXPECT_EQ(
      values(decode_image(bytes, "", {.channels = 1})),
      (Bytes{10, 20, 30, 1, 2, 3, 6, 7, 8, 7, 11, 13, 8, 12, 14}));
}

TEST(DecodePng, TreatsTheRowAboveTheFirstAsZeros) {
  for (const auto& [filter, expected] :
       {std::pair<uint8_t, Bytes>{2, {4, 4, 4}},
        {3, {4, 6, 7}},
        {4, {4, 8, 12}}}) {
    const Bytes bytes =
        PngBytes().header(3, 1, 8, 0).pixels({filter, 4, 4, 4}).end();
    EXPECT_EQ(values(decode_image(bytes, "", {.channels = 1})), expected);
  }
}

TEST(DecodePng, ScalesGrayOfFewBitsToTheFullRange) {
  EXPECT_EQ(
      values(decode_image(
          PngBytes().header(3, 1, 1, 0).pixels({0, 0b10100000}).end(),
          "",
          {.channels = 1})),
      (Bytes{255, 0, 255}));
  EXPECT_EQ(
      values(decode_image(
          PngBytes().header(4, 1, 2, 0).pixels({0, 0b00011011}).end(),
          "",
          {.channels = 1})),
      (Bytes{0, 85, 170, 255}));
  EXPECT_EQ(
      values(decode_image(
          PngBytes().header(3, 1, 4, 0).pixels({0, 0x0f, 0x80}).end(),
          "",
          {.channels = 1})),
      (Bytes{0, 255, 136}));
}

TEST(DecodePng, LooksUpPaletteColorsAndDropsTheirAlpha) {
  const Bytes palette = {1, 2, 3, 40, 50, 60};
  const Bytes bytes = PngBytes()
                          .header(3, 1, 1, 3)
                          .chunk("PLTE", palette)
                          .chunk("tRNS", {0})
                          .pixels({0, 0b01000000})
                          .end();
  EXPECT_EQ(values(decode_image(bytes)), (Bytes{1, 2, 3, 40, 50, 60, 1, 2, 3}));
}

TEST(DecodePng, DecodesColorsOutsideThePaletteAsBlack) {
  const Bytes bytes = PngBytes()
                          .header(1, 1, 8, 3)
                          .chunk("PLTE", {1, 2, 3})
                          .pixels({0, 200})
                          .end();
  EXPECT_EQ(values(decode_image(bytes)), (Bytes{0, 0, 0}));
}

TEST(DecodePng, Divides16BitsBy257) {
  Bytes rows = {0};
  Bytes expected;
  for (const int value : {0, 128, 129, 257, 385, 386, 32767, 65407, 65535}) {
    rows.push_back(static_cast<uint8_t>(value >> 8));
    rows.push_back(static_cast<uint8_t>(value));
    expected.push_back(static_cast<uint8_t>(value / 257.0 + 0.5));
  }
  const Bytes bytes = PngBytes().header(9, 1, 16, 0).pixels(rows).end();
  EXPECT_EQ(values(decode_image(bytes, "", {.channels = 1})), expected);
}

TEST(DecodePng, DropsAlpha) {
  EXPECT_EQ(
      values(decode_image(
          PngBytes().header(2, 1, 8, 4).pixels({0, 7, 0, 9, 255}).end())),
      (Bytes{7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(
      values(decode_image(
          PngBytes().header(1, 1, 8, 6).pixels({0, 1, 2, 3, 4}).end())),
      (Bytes{1, 2, 3}));
}

TEST(DecodePng, DecodesInterlacedImages) {
  // 5 x 5 pixels of value 10 y + x; passes in Adam7 order.
  Bytes rows;
  const int passes[7][4] = {
      {0, 0, 8, 8},
      {4, 0, 8, 8},
      {0, 4, 4, 8},
      {2, 0, 4, 4},
      {0, 2, 2, 4},
      {1, 0, 2, 2},
      {0, 1, 1, 2}};
  for (const auto& [x0, y0, dx, dy] : passes) {
    for (int y = y0; y < 5; y += dy) {
      rows.push_back(0);
      for (int x = x0; x < 5; x += dx) {
        rows.push_back(static_cast<uint8_t>(10 * y + x));
      }
    }
  }
  const torch::Tensor image = decode_image(
      PngBytes().header(5, 5, 8, 0, 1).pixels(rows).end(),
      "",
      {.channels = 1});
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 5; ++x) {
      EXPECT_EQ(image[y][x][0].item<int>(), 10 * y + x);
    }
  }
}

TEST(DecodePng, JoinsPixelsSplitAcrossChunks) {
  const Bytes data = PngBytes::zlib({0, 1, 2, 3});
  PngBytes png;
  png.header(3, 1, 8, 0);
  for (const uint8_t byte : data) {
    png.chunk("IDAT", {byte});
  }
  EXPECT_EQ(
      values(decode_image(png.end(), "", {.channels = 1})),
      (Bytes{1, 2, 3}));
}

TEST(DecodePng, AppliesTheExifOrientation) {
  const Bytes exif = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 18, 1, 3,
                      0,   1,   0,  0, 0, 6, 0, 0, 0, 0, 0,  0, 0};
  const Bytes bytes =
      PngBytes().header(2, 1, 8, 0).chunk("eXIf", exif).pixels({0, 1, 2}).end();
  const torch::Tensor image = decode_image(bytes, "", {.channels = 1});
  EXPECT_EQ(image.sizes(), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(values(image), (Bytes{1, 2}));
}

TEST(DecodePng, RejectsAFileTruncatedAnywhere) {
  const Bytes bytes = encode(random_image(4, 5), ".png");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string error =
        error_for({bytes.begin(), bytes.begin() + static_cast<long>(size)});
    EXPECT_EQ(error.find("digit.png: is "), 0) << size << ": " << error;
    if (size >= 8) {
      EXPECT_NE(error.find("truncated"), std::string::npos)
          << size << ": " << error;
      EXPECT_NE(error.find("Replace it or remove it"), std::string::npos)
          << error;
    }
  }
}

TEST(DecodePng, DetectsEveryFlippedBitOfPixelsAndHeader) {
  const Bytes bytes =
      PngBytes().header(3, 2, 8, 0).pixels({0, 1, 2, 3, 0, 4, 5, 6}).end();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    // Bit 5 of a chunk's first letter makes it optional; then a required chunk
    // is missing.
    EXPECT_THROW(decode_image(flipped, "digit.png"), DataError) << bit;
  }
}

struct Mistake {
  const char* name;
  Bytes bytes;
  const char* words;
};

class DecodePngMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(DecodePngMistakes, AreReportedInOneSentence) {
  const std::string error = error_for(GetParam().bytes);
  EXPECT_EQ(error.find("digit.png: is a damaged PNG file"), 0) << error;
  EXPECT_NE(error.find(GetParam().words), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    DecodePng,
    DecodePngMistakes,
    testing::Values(
        Mistake{
            "UnknownColorType",
            PngBytes().header(1, 1, 8, 5).pixels({0, 0}).end(),
            "the color type 5"},
        Mistake{
            "UnknownBitDepth",
            PngBytes().header(1, 1, 3, 0).pixels({0, 0}).end(),
            "with 3 bits"},
        Mistake{
            "UnknownInterlacing",
            PngBytes().header(1, 1, 8, 0, 2).pixels({0, 0}).end(),
            "interlace method"},
        Mistake{
            "UnknownFilter",
            PngBytes().header(1, 1, 8, 0).pixels({5, 0}).end(),
            "unknown filter"},
        Mistake{
            "UnknownCriticalChunk",
            PngBytes().header(1, 1, 8, 0).chunk("CgBI", {}).end(),
            "unknown kind"},
        Mistake{"NoPixels", PngBytes().header(1, 1, 8, 0).end(), "no pixels"},
        Mistake{
            "NoPalette",
            PngBytes().header(1, 1, 8, 3).pixels({0, 0}).end(),
            "no palette"},
        Mistake{
            "LargePalette",
            PngBytes().header(1, 1, 8, 3).chunk("PLTE", Bytes(771)).end(),
            "more than 256"},
        Mistake{
            "ShortSecondHeader",
            PngBytes().header(1, 1, 8, 0).chunk("IHDR", {1, 2}).end(),
            "wrong length"},
        Mistake{
            "TooFewRows",
            PngBytes().header(1, 2, 8, 0).pixels({0, 0}).end(),
            "less data"},
        Mistake{
            "TooManyRows",
            PngBytes().header(1, 1, 8, 0).pixels({0, 0, 0, 0}).end(),
            "more data"},
        Mistake{
            "NoCompressedData",
            PngBytes().header(1, 1, 8, 0).chunk("IDAT", Bytes(20)).end(),
            "compressed data"},
        Mistake{
            "FewBytesForManyPixels",
            PngBytes().header(10000, 10000, 8, 2).pixels({0, 0}).end(),
            "less data"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tern::decode_png_test
