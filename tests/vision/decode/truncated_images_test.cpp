#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/vision/test_images.h"
#include "tern/tests/vision/tiff_file.h"
#include "tern/vision/decode/decode.h"

namespace tern::truncated_images_test {
namespace {

using Bytes = std::vector<uint8_t>;
using Named = std::pair<std::string, Bytes>;

constexpr int kHeight = 70, kWidth = 47;

/// Returns the contiguous bytes of a region.
Bytes bytes_of(const cv::Mat& image) {
  const cv::Mat rows = image.clone();
  return {rows.datastart, rows.dataend};
}

/// Returns an image that every compression makes smaller.
cv::Mat half_random_image(int type) {
  cv::Mat image = random_image(kHeight, kWidth, type);
  image.colRange(kWidth / 2, kWidth).setTo(cv::Scalar::all(77));
  return image;
}

/// Returns the tags of an uncompressed TIFF file, except for its blocks.
TiffFile tiff_like(const cv::Mat& image) {
  const auto samples = static_cast<uint32_t>(image.channels());
  const auto bits = static_cast<uint32_t>(8 * image.elemSize1());
  return {
      .tags =
          {{TiffTags::kWidth, {static_cast<uint32_t>(image.cols)}},
           {TiffTags::kHeight, {static_cast<uint32_t>(image.rows)}},
           {TiffTags::kBitsPerSample, std::vector<uint32_t>(samples, bits)},
           {TiffTags::kCompression, {1}},
           {TiffTags::kPhotometric, {samples == 1 ? 1u : 2u}},
           {TiffTags::kSamplesPerPixel, {samples}}},
      .blocks = {}};
}

TiffFile in_strips(const cv::Mat& image, int rows) {
  TiffFile file = tiff_like(image);
  file.tags[TiffTags::kRowsPerStrip] = {static_cast<uint32_t>(rows)};
  for (int top = 0; top < image.rows; top += rows) {
    const int bottom = std::min(top + rows, image.rows);
    file.blocks.push_back(bytes_of(image.rowRange(top, bottom)));
  }
  return file;
}

TiffFile in_tiles(const cv::Mat& image) {
  // libtiff 4.5 rejects uncompressed tiles whose size is not a multiple of 1
  // KiB.
  constexpr int kTile = 32;
  TiffFile file = tiff_like(image);
  file.tags[TiffTags::kTileWidth] = file.tags[TiffTags::kTileHeight] = {kTile};
  for (int top = 0; top < image.rows; top += kTile) {
    for (int left = 0; left < image.cols; left += kTile) {
      cv::Mat tile(kTile, kTile, image.type(), cv::Scalar::all(0));
      const cv::Rect part =
          cv::Rect(left, top, kTile, kTile) & cv::Rect({}, image.size());
      image(part).copyTo(tile(cv::Rect({}, part.size())));
      file.blocks.push_back(bytes_of(tile));
    }
  }
  return file;
}

/// Returns a plane per color, each in strips of 20 rows.
TiffFile in_planes(const cv::Mat& image) {
  TiffFile file = in_strips(image, 20);
  file.tags[TiffTags::kPlanarConfig] = {TiffTags::kSeparatePlanes};
  file.blocks.clear();
  std::vector<cv::Mat> planes;
  cv::split(image, planes);
  for (const cv::Mat& plane : planes) {
    for (Bytes& strip : in_strips(plane, 20).blocks) {
      file.blocks.push_back(std::move(strip));
    }
  }
  return file;
}

/// Returns uncompressed TIFF files of an RGB image.
std::vector<std::pair<std::string, TiffFile>> plain_tiffs(const cv::Mat& rgb) {
  std::vector<std::pair<std::string, TiffFile>> files = {
      {"one strip", in_strips(rgb, kHeight)},
      {"a strip a row", in_strips(rgb, 1)},
      {"strips", in_strips(rgb, 16)},
      {"tiles", in_tiles(rgb)},
      {"planes", in_planes(rgb)},
      {"one strip without its size", in_strips(rgb, kHeight)},
      {"one strip without its rows", in_strips(rgb, kHeight)}};
  files[5].second.has_sizes = false;
  files[6].second.tags.erase(TiffTags::kRowsPerStrip);
  const size_t count = files.size();
  for (size_t i = 0; i < count; ++i) {
    files.push_back(files[i]);
    files.back().first += ", big-endian";
    files.back().second.big_endian = true;
  }
  return files;
}

std::vector<Named> tiffs() {
  std::vector<Named> images;
  for (const auto& [name, file] : plain_tiffs(half_random_image(CV_8UC3))) {
    images.emplace_back("TIFF, " + name, file.bytes());
  }
  constexpr int kNone = 1, kLzw = 5, kJpeg = 7, kDeflate = 8, kPackbits = 32773;
  for (const int type : {CV_8UC1, CV_8UC3, CV_8UC4, CV_16UC1, CV_16UC3}) {
    for (const int compression : {kNone, kLzw, kJpeg, kDeflate, kPackbits}) {
      if (compression == kJpeg && type != CV_8UC1 && type != CV_8UC3) continue;
      const Bytes bytes = encode(
          half_random_image(type),
          ".tiff",
          {cv::IMWRITE_TIFF_COMPRESSION,
           compression,
           TiffTags::kRowsPerStrip,
           16});
      const std::string name = "TIFF of type " + std::to_string(type) +
                               ", compression " + std::to_string(compression);
      images.emplace_back(name, bytes);
      images.emplace_back(
          name + ", directory first",
          read_tiff_file(bytes).bytes());
    }
  }
  return images;
}

/// Returns a BMP of `kHeight` x `kWidth`.
/// \param compression  0 none, 1 and 2 run lengths, 3 masks after the header.
Bytes bmp(
    uint32_t bits,
    uint32_t compression,
    const Bytes& behind_header,
    const Bytes& pixels) {
  Bytes bytes = {'B', 'M'};
  const auto number = [&](size_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
    }
  };
  const size_t start = 54 + behind_header.size();
  number(start + pixels.size(), 4);
  number(0, 4);
  number(start, 4);
  number(40, 4);
  number(kWidth, 4);
  number(kHeight, 4);
  number(1, 2);
  number(bits, 2);
  number(compression, 4);
  number(pixels.size(), 4);
  bytes.resize(54);
  bytes.insert(bytes.end(), behind_header.begin(), behind_header.end());
  bytes.insert(bytes.end(), pixels.begin(), pixels.end());
  return bytes;
}

/// Returns a palette of `colors` colors, none of them gray.
Bytes palette(int colors) {
  Bytes bytes;
  for (int i = 0; i < colors; ++i) {
    const auto blue = static_cast<uint8_t>(i * 255 / (colors - 1));
    bytes.insert(bytes.end(), {blue, static_cast<uint8_t>(255 - blue), 9, 0});
  }
  return bytes;
}

/// Returns runs of random colors, with an end-of-line mark after each row. For
/// 4 bits, a byte holds two alternating colors.
Bytes run_lengths() {
  std::mt19937 random(5);
  Bytes bytes;
  for (int row = 0; row < kHeight; ++row) {
    for (int left = kWidth; left > 0;) {
      const int run = std::min<int>(left, 1 + random() % 9);
      bytes.push_back(static_cast<uint8_t>(run));
      bytes.push_back(static_cast<uint8_t>(random()));
      left -= run;
    }
    const bool is_last = row + 1 == kHeight;
    bytes.insert(bytes.end(), {0, static_cast<uint8_t>(is_last)});
  }
  return bytes;
}

std::vector<Named> bmps() {
  const auto rows_of = [](size_t bits) {
    return bytes_of(random_image(
        kHeight,
        static_cast<int>((kWidth * bits + 31) / 32 * 4),
        CV_8UC1));
  };
  const Bytes masks_565 = {0, 0xf8, 0, 0, 0xe0, 7, 0, 0, 0x1f, 0, 0, 0};
  return {
      {"BMP, 1 bit", bmp(1, 0, palette(2), rows_of(1))},
      {"BMP, 4 bits", bmp(4, 0, palette(16), rows_of(4))},
      {"BMP, 8 bits", bmp(8, 0, palette(256), rows_of(8))},
      {"BMP, 15 bits", bmp(16, 0, {}, rows_of(16))},
      {"BMP, 16 bits", bmp(16, 3, masks_565, rows_of(16))},
      {"BMP, 24 bits", bmp(24, 0, {}, rows_of(24))},
      {"BMP, 32 bits", bmp(32, 0, {}, rows_of(32))},
      {"BMP, run lengths of 8 bits", bmp(8, 1, palette(256), run_lengths())},
      {"BMP, run lengths of 4 bits", bmp(4, 2, palette(16), run_lengths())}};
}

/// Returns an image of every kind that Tern reads.
std::vector<Named> every_kind() {
  std::vector<Named> images = tiffs();
  for (Named& image : bmps()) images.push_back(std::move(image));
  const cv::Mat color = half_random_image(CV_8UC3);
  images.emplace_back("JPEG", encode(color, ".jpg"));
  images.emplace_back(
      "progressive JPEG",
      encode(color, ".jpg", {cv::IMWRITE_JPEG_PROGRESSIVE, 1}));
  for (const int type : {CV_8UC1, CV_8UC3, CV_8UC4, CV_16UC3}) {
    images.emplace_back(
        "PNG of type " + std::to_string(type),
        encode(half_random_image(type), ".png"));
  }
  for (const int quality : {50, 101}) {  // 101: lossless
    images.emplace_back(
        "WebP of quality " + std::to_string(quality),
        encode(color, ".webp", {cv::IMWRITE_WEBP_QUALITY, quality}));
  }
  return images;
}

/// Returns every length in the first 400 bytes, which have the headers, and
/// some of the other lengths.
std::vector<size_t> cuts_of(size_t size, std::mt19937& random) {
  std::vector<size_t> cuts;
  for (size_t cut = 0; cut < std::min<size_t>(size, 400); ++cut) {
    cuts.push_back(cut);
  }
  for (int i = 0; i < 40; ++i) cuts.push_back(random() % size);
  cuts.push_back(size - 1);
  return cuts;
}

// Missing pixels are never returned as black or as pixels of the previous
// image.
TEST(TruncatedImages, AreRejectedUnlessEveryPixelIsPresent) {
  const Bytes other = encode(random_image(kHeight, kWidth), ".bmp");
  const std::vector<Named> images = every_kind();
  testing::internal::CaptureStderr();
  for_random_cases(1, [&](uint64_t seed) {
    std::mt19937 random(seed);
    for (const auto& [name, bytes] : images) {
      const torch::Tensor whole = decode_image(bytes, name);
      ASSERT_EQ(whole.sizes(), (std::vector<int64_t>{kHeight, kWidth, 3}));
      int errors = 0;
      for (const size_t size : cuts_of(bytes.size(), random)) {
        decode_image(other);
        try {
          const torch::Tensor cut = decode_image({bytes.data(), size}, "cut");
          EXPECT_TRUE(cut.equal(whole))
              << name << ": " << size << " of " << bytes.size() << " bytes";
        } catch (const DataError& error) {
          EXPECT_EQ(std::string(error.what()).find("cut: is "), 0u);
          ++errors;
        }
      }
      EXPECT_GT(errors, 400) << name;
    }
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(TruncatedImages, AreReportedAsTruncatedForTiff) {
  const cv::Mat rgb = half_random_image(CV_8UC3);
  for (const auto& [name, file] : plain_tiffs(rgb)) {
    const Bytes bytes = file.bytes();
    for (const size_t size : {size_t{60}, bytes.size() - 1}) {
      expect_error<DataError>(
          [&] {
            decode_image({bytes.data(), size}, "cut.tif");
          },
          {"cut.tif: is truncated", "Replace it or remove it"});
    }
  }
}

// A whole file whose header OpenCV does not support.
TEST(TruncatedImages, AFailureOfOpenCvNeverReturnsThePreviousImage) {
  const Bytes other = encode(random_image(kHeight, kWidth), ".bmp");
  decode_image(other);
  const Bytes bytes = bmp(24, 1, {}, Bytes(kHeight * kWidth * 3));
  expect_error<DataError>(
      [&] { decode_image(bytes, "odd.bmp"); },
      {"odd.bmp: is a damaged or unusual BMP"});
}

TEST(TruncatedImages, ReadsWholeTiffsInStripsTilesAndPlanes) {
  const cv::Mat rgb = half_random_image(CV_8UC3);
  const torch::Tensor expected =
      torch::from_blob(rgb.data, {kHeight, kWidth, 3}, torch::kByte);
  for (const auto& [name, file] : plain_tiffs(rgb)) {
    EXPECT_TRUE(decode_image(file.bytes(), name).equal(expected)) << name;
  }
}

// OpenCV would read one plane and leave the others uninitialized.
TEST(TruncatedImages, RejectsPlanarTiffsOf16BitsByName) {
  const Bytes bytes = in_planes(half_random_image(CV_16UC3)).bytes();
  expect_error<DataError>(
      [&] { decode_image(bytes, "planes.tif"); },
      {"planes.tif: ", "a separate plane per channel", "save it"});
}

}  // namespace
}  // namespace tern::truncated_images_test
