#include "tern/vision/decode/decode.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <jpeglib.h>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <torch/nn/functional/upsampling.h>

#include "tern/data/formats/error.h"
#include "tern/data/support/random.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/decode/decoders.h"

namespace tern::decode_test {
namespace {

using Bytes = std::vector<uint8_t>;

/// Converts OpenCV's image to ours: RGB or gray, [H, W, C].
torch::Tensor tensor_of(const cv::Mat& image) {
  cv::Mat rgb = image;
  if (image.channels() == 3) {
    cv::cvtColor(image, rgb, cv::COLOR_BGR2RGB);
  }
  return torch::from_blob(
             rgb.data,
             {rgb.rows, rgb.cols, rgb.channels()},
             torch::kByte)
      .clone();
}

int64_t largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(torch::kInt) - b.to(torch::kInt)).abs().max().item<int64_t>();
}

/// Returns an image without noise, which JPEG and WebP preserve well.
cv::Mat smooth_image(int height, int width) {
  cv::Mat image(height, width, CV_8UC3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.at<cv::Vec3b>(y, x) = cv::Vec3b(
          static_cast<uint8_t>(255 * x / width),
          static_cast<uint8_t>(255 * y / height),
          static_cast<uint8_t>(100 + 50 * x / width));
    }
  }
  return image;
}

/// \param pixels  [size, size, 4].
Bytes cmyk_jpeg(Bytes pixels, int size) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long length = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &data, &length);
  info.image_width = info.image_height = static_cast<JDIMENSION>(size);
  info.input_components = 4;
  info.in_color_space = JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  jpeg_start_compress(&info, TRUE);
  for (int row = 0; row < size; ++row) {
    JSAMPROW pointer = pixels.data() + static_cast<size_t>(row) * size * 4;
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(data, data + length);
  std::free(data);
  return bytes;
}

std::string error_for(const Bytes& bytes, const DecodeOptions& options = {}) {
  return error_of<DataError>([&] { decode_image(bytes, "cat.jpg", options); });
}

TEST(Decode, EqualsOpenCvForJpeg) {
  const Bytes bytes = encode(smooth_image(61, 47), ".jpg");
  EXPECT_TRUE(torch::equal(
      decode_image(bytes),
      tensor_of(cv::imdecode(bytes, cv::IMREAD_COLOR))));
  EXPECT_TRUE(torch::equal(
      decode_image(bytes, "", {.channels = 1}),
      tensor_of(cv::imdecode(bytes, cv::IMREAD_GRAYSCALE))));
}

TEST(Decode, EqualsOpenCvForWebpBmpAndTiff) {
  for (const char* suffix : {".webp", ".bmp", ".tiff"}) {
    const Bytes bytes = encode(smooth_image(61, 47), suffix);
    EXPECT_TRUE(torch::equal(
        decode_image(bytes),
        tensor_of(cv::imdecode(bytes, cv::IMREAD_COLOR))))
        << suffix;
    EXPECT_LE(
        largest_difference(
            decode_image(bytes, "", {.channels = 1}),
            tensor_of(cv::imdecode(bytes, cv::IMREAD_GRAYSCALE))),
        1)
        << suffix;
  }
}

TEST(Decode, DropsTheAlphaOfWebpAndTiff) {
  for (const char* suffix : {".webp", ".tiff"}) {
    cv::Mat image(9, 7, CV_8UC4, cv::Scalar(10, 20, 30, 255));
    const Bytes bytes = encode(image, suffix, {cv::IMWRITE_WEBP_QUALITY, 101});
    EXPECT_EQ(decode_image(bytes).size(2), 3) << suffix;
  }
}

// Returns an uncompressed TIFF of one strip.
Bytes tiff(
    const cv::Mat& rgb,
    uint16_t orientation,
    uint16_t alpha = 0,
    bool big_endian = false) {
  const auto samples = static_cast<uint16_t>(rgb.channels());
  std::string text = big_endian ? "MM" : "II";
  const auto number = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      text += static_cast<char>(value >> 8 * (big_endian ? size - 1 - i : i));
    }
  };
  number(42, 2);
  number(8, 4);
  const std::vector<std::array<uint32_t, 3>> tags = {
      {256, 1, static_cast<uint32_t>(rgb.cols)},
      {257, 1, static_cast<uint32_t>(rgb.rows)},
      {258, 1, static_cast<uint32_t>(8 * rgb.elemSize1())},
      {259, 1, 1},
      {262, 1, samples == 1 ? 1u : 2u},
      {273, 1, 200},
      {274, 1, orientation},
      {277, 1, samples},
      {278, 1, static_cast<uint32_t>(rgb.rows)},
      {279, 1, static_cast<uint32_t>(rgb.total() * rgb.elemSize())},
      {284, 1, 1},
      {338, 1, alpha}};
  const size_t count = tags.size() - (samples < 4);
  number(static_cast<uint32_t>(count), 2);
  for (size_t i = 0; i < count; ++i) {
    number(tags[i][0], 2);
    const bool is_short = tags[i][0] == 258;
    number(is_short ? 3 : 4, 2);
    number(tags[i][1], 4);
    number(tags[i][2], is_short ? 2 : 4);
    if (is_short) number(0, 2);
  }
  text.resize(200);
  Bytes bytes(text.begin(), text.end());
  bytes.insert(bytes.end(), rgb.datastart, rgb.dataend);
  if (big_endian && rgb.elemSize1() == 2) {
    for (size_t i = 200; i + 1 < bytes.size(); i += 2) {
      std::swap(bytes[i], bytes[i + 1]);
    }
  }
  return bytes;
}

TEST(Decode, ReadsTiffsOfEitherByteOrderDepthAndAlpha) {
  for (const int type :
       {CV_8UC1, CV_8UC3, CV_8UC4, CV_16UC1, CV_16UC3, CV_16UC4}) {
    const cv::Mat stored = random_image(5, 7, type);
    cv::Mat color = stored;
    if (stored.channels() == 1) cv::cvtColor(stored, color, cv::COLOR_GRAY2RGB);
    if (stored.channels() == 4) cv::cvtColor(stored, color, cv::COLOR_RGBA2RGB);
    torch::Tensor expected = torch::empty({5, 7, 3}, torch::kByte);
    for (int i = 0; i < 5 * 7 * 3; ++i) {
      expected.data_ptr<uint8_t>()[i] =
          stored.depth() == CV_8U ? color.data[i]
                                  : static_cast<uint8_t>(std::lround(
                                        color.ptr<uint16_t>()[i] / 257.0));
    }
    // Associated alpha, with premultiplied colors, and unassociated alpha.
    for (const uint16_t alpha : {1, 2}) {
      for (const bool big_endian : {false, true}) {
        EXPECT_TRUE(
            decode_image(tiff(stored, 1, alpha, big_endian)).equal(expected))
            << "type " << type << " alpha " << alpha << " big " << big_endian;
      }
    }
  }
}

TEST(Decode, ShrinksNoiseAsIfTheWholeJpegWereDecoded) {
  namespace F = torch::nn::functional;
  // The factors from which libjpeg decodes at 1/2, 1/4 and 1/8.
  for (const int factor : {15, 16, 24, 40}) {
    const Bytes bytes = encode(random_image(factor * 9, factor * 12), ".jpg");
    torch::Tensor shrunk = torch::empty({9, 12, 3}, torch::kByte);
    EncodedImage(bytes, "").decode({9, 12}, shrunk.data_ptr<uint8_t>());
    const torch::Tensor expected =
        F::interpolate(
            decode_image(bytes).permute({2, 0, 1}).unsqueeze(0).to(
                torch::kDouble),
            F::InterpolateFuncOptions()
                .size(std::vector<int64_t>{9, 12})
                .mode(torch::kBilinear)
                .align_corners(false)
                .antialias(true))[0]
            .permute({1, 2, 0});
    EXPECT_LE((shrunk - expected.round()).abs().max().item<double>(), 1)
        << factor;
  }
}

TEST(Decode, AppliesTheOrientationOfATiffOnceAndOnlyIfEnabled) {
  for (const int type : {CV_8UC1, CV_8UC3, CV_8UC4}) {
    const cv::Mat stored = random_image(5, 7, type);
    cv::Mat color = stored;
    if (type == CV_8UC1) cv::cvtColor(stored, color, cv::COLOR_GRAY2RGB);
    if (type == CV_8UC4) cv::cvtColor(stored, color, cv::COLOR_RGBA2RGB);
    const torch::Tensor as_stored =
        torch::from_blob(color.data, {5, 7, 3}, torch::kByte).clone();
    const torch::Tensor turned = as_stored.transpose(0, 1);
    const std::vector<torch::Tensor> upright = {
        as_stored,
        as_stored.flip({1}),
        as_stored.flip({0, 1}),
        as_stored.flip({0}),
        turned,
        turned.flip({1}),
        turned.flip({0, 1}),
        turned.flip({0})};
    for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
      const Bytes bytes = tiff(stored, orientation, 2);
      EXPECT_TRUE(decode_image(bytes).equal(upright[orientation - 1]))
          << orientation << " of type " << type;
      EXPECT_TRUE(
          decode_image(bytes, "", {.exif_orientation = false}).equal(as_stored))
          << orientation << " of type " << type;
    }
  }
}

TEST(Decode, RepeatsGrayForColorOutput) {
  const Bytes bytes = encode(random_image(20, 30, CV_8UC1), ".jpg");
  const torch::Tensor color = decode_image(bytes);
  const torch::Tensor gray = decode_image(bytes, "", {.channels = 1});
  EXPECT_TRUE(torch::equal(color, gray.expand({20, 30, 3})));
}

TEST(Decode, AppliesTheOrientationOfAJpegLikeOpenCv) {
  const Bytes plain = encode(smooth_image(24, 40), ".jpg");
  for (uint8_t orientation = 0; orientation <= 9; ++orientation) {
    const Bytes bytes = with_orientation(plain, orientation);
    EXPECT_TRUE(torch::equal(
        decode_image(bytes),
        tensor_of(cv::imdecode(bytes, cv::IMREAD_COLOR))))
        << int{orientation};
    EXPECT_TRUE(torch::equal(
        decode_image(bytes, "", {.exif_orientation = false}),
        decode_image(plain)))
        << int{orientation};
  }
}

TEST(Decode, AppliesTheOrientationAlsoWhenItResizes) {
  const Bytes plain = encode(smooth_image(240, 400), ".jpg");
  for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
    const Bytes bytes = with_orientation(plain, orientation);
    torch::Tensor resized = torch::empty({30, 20, 3}, torch::kByte);
    EncodedImage(bytes, "").decode({30, 20}, resized.data_ptr<uint8_t>());
    cv::Mat expected;
    cv::resize(
        cv::imdecode(bytes, cv::IMREAD_COLOR),
        expected,
        {20, 30},
        0,
        0,
        cv::INTER_AREA);
    EXPECT_LE(largest_difference(resized, tensor_of(expected)), 8)
        << int{orientation};
  }
}

TEST(Decode, ResizesToAnySize) {
  for (const char* suffix : {".jpg", ".png", ".bmp"}) {
    const Bytes bytes = encode(smooth_image(100, 150), suffix);
    for (const ImageSize size :
         {ImageSize{1, 1}, {100, 10}, {10, 150}, {99, 149}, {300, 20}}) {
      torch::Tensor resized =
          torch::empty({size.height, size.width, 3}, torch::kByte);
      EncodedImage(bytes, "").decode(size, resized.data_ptr<uint8_t>());
      const double mean = resized.to(torch::kFloat).mean().item<double>();
      EXPECT_NEAR(mean, 126, 20) << suffix << size.height << size.width;
    }
  }
}

TEST(Decode, WorksForImagesOfOneRowOrColumn) {
  for (const char* suffix : {".jpg", ".png"}) {
    for (const auto& [height, width] :
         {std::pair{1, 1}, {1, 10000}, {10000, 1}}) {
      const Bytes bytes = encode(random_image(height, width), suffix);
      EXPECT_EQ(
          decode_image(bytes).sizes(),
          (std::vector<int64_t>{height, width, 3}));
    }
  }
}

TEST(Decode, ReadsCmykAsWrittenByAdobe) {
  // Inverted: 255 means no ink.
  const std::vector<std::array<uint8_t, 4>> colors = {
      {255, 255, 255, 255},
      {255, 0, 0, 255},
      {0, 0, 0, 0},
      {255, 255, 0, 128}};
  const std::vector<std::array<int, 3>> expected = {
      {255, 255, 255},
      {255, 0, 0},
      {0, 0, 0},
      {128, 128, 0}};
  for (size_t i = 0; i < colors.size(); ++i) {
    Bytes pixels;
    for (int k = 0; k < 16 * 16; ++k) {
      pixels.insert(pixels.end(), colors[i].begin(), colors[i].end());
    }
    const torch::Tensor image = decode_image(cmyk_jpeg(pixels, 16));
    for (int c = 0; c < 3; ++c) {
      EXPECT_NEAR(image[8][8][c].item<int>(), expected[i][c], 3) << i;
    }
  }
}

TEST(Decode, Divides16BitTiffBy257) {
  const cv::Mat image = random_image(9, 7, CV_16UC1);
  const torch::Tensor decoded =
      decode_image(encode(image, ".tiff"), "", {.channels = 1});
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 7; ++x) {
      const int expected =
          static_cast<int>(std::lround(image.at<uint16_t>(y, x) / 257.0));
      EXPECT_EQ(decoded[y][x][0].item<int>(), expected);
    }
  }
}

TEST(Decode, RejectsFloatTiffByName) {
  const cv::Mat image(4, 4, CV_32FC1, cv::Scalar(0.5));
  const std::string error = error_for(encode(image, ".tiff"));
  EXPECT_NE(error.find("floating-point"), std::string::npos) << error;
}

TEST(Decode, RejectsAJpegTruncatedAnywhere) {
  const Bytes bytes = encode(smooth_image(61, 47), ".jpg");
  for (size_t percent = 0; percent < 100; ++percent) {
    const size_t size = bytes.size() * percent / 100;
    const std::string error =
        error_for({bytes.begin(), bytes.begin() + static_cast<long>(size)});
    EXPECT_EQ(error.find("cat.jpg: is "), 0) << percent << ": " << error;
  }
  // Without its last marker every pixel may be present, but this is not
  // certain.
  const std::string error = error_for({bytes.begin(), bytes.end() - 2});
  EXPECT_NE(error.find("truncated"), std::string::npos) << error;
}

TEST(Decode, AcceptsATruncatedJpegIfLenient) {
  Bytes bytes = encode(smooth_image(61, 47), ".jpg");
  const torch::Tensor whole = decode_image(bytes);
  bytes.resize(bytes.size() - 200);
  const torch::Tensor cut = decode_image(bytes, "", {.lenient = true});
  EXPECT_TRUE(torch::equal(cut[0], whole[0]));
  EXPECT_FALSE(torch::equal(cut, whole));
}

TEST(Decode, IgnoresWhatFollowsAJpegOrPng) {
  for (const char* suffix : {".jpg", ".png"}) {
    Bytes bytes = encode(smooth_image(61, 47), suffix);
    const torch::Tensor expected = decode_image(bytes);
    bytes.insert(bytes.end(), 1000, 0x5a);
    EXPECT_TRUE(torch::equal(decode_image(bytes), expected)) << suffix;
  }
}

TEST(Decode, RejectsEveryTruncationOfTheOtherFormats) {
  for (const char* suffix : {".webp", ".bmp"}) {
    const Bytes bytes = encode(smooth_image(20, 30), suffix);
    for (size_t size = 0; size < bytes.size(); size += 7) {
      EXPECT_THROW(decode_image({bytes.data(), size}, "cat.jpg"), DataError)
          << suffix << size;
    }
  }
}

TEST(Decode, ConvertsErrorsOfOpenCvToDataErrors) {
  for (const char* suffix : {".webp", ".tiff"}) {
    const Bytes bytes = encode(random_image(40, 30), suffix);
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 150) {
      Bytes damaged = bytes;
      damaged[at] ^= 0x55;
      try {
        EXPECT_EQ(decode_image(damaged, "cat.jpg").size(2), 3);
      } catch (const DataError& error) {
        EXPECT_EQ(error.path(), "cat.jpg");
      }
    }
  }
}

TEST(Decode, WritesNothingToStderrForABrokenJpegOrPng) {
  testing::internal::CaptureStderr();
  for (const char* suffix : {".jpg", ".png"}) {
    const Bytes bytes = encode(smooth_image(40, 30), suffix);
    for (size_t at = 0; at < bytes.size(); ++at) {
      Bytes damaged = bytes;
      damaged[at] ^= 0x10;
      try {
        decode_image(damaged, "cat.jpg");
      } catch (const DataError&) {
        // not covered by this test
      }
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Decode, DetectsTheFormatByContentAndNotByName) {
  const TempFolder temp;
  const Bytes bytes = encode(smooth_image(20, 30), ".png");
  write_file(temp / "photo.JPG", bytes);
  EXPECT_TRUE(torch::equal(
      read_image((temp / "photo.JPG").string()),
      decode_image(bytes)));
}

TEST(Decode, RejectsOtherFormatsByName) {
  const Bytes gif = {'G', 'I', 'F', '8', '9', 'a', 4, 0, 4, 0, 0, 0, 0};
  EXPECT_EQ(error_for(gif).find("cat.jpg: is a GIF"), 0);
  // These never reach a decoder.
  const Bytes jpeg2000 = {0, 0, 0, 12, 'j', 'P', ' ', ' ', '\r', '\n'};
  const Bytes exr = {0x76, 0x2f, 0x31, 0x01, 2, 0, 0, 0};
  const Bytes sun = encode(smooth_image(20, 30), ".ras");
  const Bytes text = {'P', '3', '\n', '1', ' ', '1', ' ', '9', '\n', '0'};
  for (const Bytes& bytes : {jpeg2000, exr, sun, text}) {
    EXPECT_EQ(error_for(bytes).find("cat.jpg: is not an image"), 0);
  }
}

// GTSRB is published as PPM; X-rays are published as 16-bit PGM.
TEST(Decode, ReadsTheBinaryFormatsOfNetpbm) {
  const cv::Mat color = random_image(5, 7), gray = random_image(5, 7, CV_8UC1);
  for (const auto& [image, suffix] :
       {std::pair(color, ".ppm"), {gray, ".pgm"}}) {
    for (const int64_t channels : {1, 3}) {
      const DecodeOptions options{.channels = channels};
      Bytes bytes = encode(image, suffix);
      const auto pixels = decode_image(encode(image, ".png"), "a.png", options);
      const auto expect_pixels = [&](const Bytes& file) {
        EXPECT_TRUE(torch::equal(decode_image(file, "a", options), pixels));
      };
      expect_pixels(bytes);
      // With comments and other whitespace, which the format allows.
      const std::string head = {bytes.begin(), bytes.begin() + 2};
      const std::string text = head + "# by hand\n\t7 #w\n5\r\n255\n";
      const size_t size = image.total() * image.elemSize();
      Bytes other(text.begin(), text.end());
      other.insert(
          other.end(),
          bytes.end() - static_cast<int64_t>(size),
          bytes.end());
      expect_pixels(other);
      cv::Mat wide;
      image.convertTo(wide, CV_16U, 257);
      expect_pixels(encode(wide, suffix));
      bytes.pop_back();
      EXPECT_NE(error_for(bytes).find("is truncated"), std::string::npos);
    }
  }
  const auto error = [](const std::string& text) {
    return error_for({text.begin(), text.end()});
  };
  EXPECT_NE(error("P5 1 1 15\n1").find("maxval 15"), std::string::npos);
  EXPECT_NE(
      error("P5 1 -1 255\n1").find("is a damaged PNM"),
      std::string::npos);
  EXPECT_NE(
      error("P6 99999 99999 255\n1").find("truncated"),
      std::string::npos);
  EXPECT_NE(error("P6 9999999999 1 255\n1").find("damaged"), std::string::npos);
  EXPECT_NE(error("P5 3 ").find("truncated"), std::string::npos);
  EXPECT_NE(
      error("P5 1 1 255").find("not followed by whitespace"),
      std::string::npos);
  EXPECT_NE(error("P55 1 1 255\n1").find("is not an image"), std::string::npos);
}

// Memory of earlier images must never appear in the next one.
TEST(Decode, DamagedFilesNeverReturnPixelsOfThePreviousImage) {
  const char* const suffixes[] =
      {".jpg", ".png", ".webp", ".bmp", ".tif", ".ppm", ".pgm"};
  const auto attempt = [](const Bytes& bytes, bool is_warped) -> torch::Tensor {
    try {
      const EncodedImage image(bytes, "a", {.lenient = true});
      torch::Tensor pixels = torch::zeros({20, 30, 3}, torch::kByte);
      Warp warp;
      if (is_warped) warp.matrix = Matrix3::scaling(0.9, 0.8);
      image.sample(warp, {20, 30}, pixels.mutable_data_ptr<uint8_t>());
      return pixels;
    } catch (const DataError&) {
      return {};
    }
  };
  for_random_cases(150, [&](uint64_t seed) {
    SampleRng rng(seed, 0, 0);
    const char* const suffix = suffixes[seed % std::size(suffixes)];
    const int type = suffix == std::string(".pgm") ? CV_8UC1 : CV_8UC3;
    Bytes damaged = encode(random_image(20, 30, type), suffix);
    const bool is_cut = rng.below(2) == 0;
    if (is_cut) {
      damaged.resize(rng.below(damaged.size()));
    } else {
      for (uint64_t i = rng.below(4); i < 5; ++i) {
        damaged[rng.below(damaged.size())] ^=
            static_cast<uint8_t>(1 + rng.below(255));
      }
    }
    const bool is_warped = rng.below(2) == 0;
    std::vector<torch::Tensor> results;
    for (const int brightness : {10, 240}) {
      const cv::Mat before(20, 30, type, cv::Scalar::all(brightness));
      for (const bool warps : {true, false}) {
        ASSERT_TRUE(attempt(encode(before, suffix), warps).defined());
      }
      results.push_back(attempt(damaged, is_warped));
    }
    ASSERT_EQ(results[0].defined(), results[1].defined()) << suffix;
    if (results[0].defined()) {
      EXPECT_TRUE(torch::equal(results[0], results[1])) << suffix;
    }
  });
}

// The luma stored in a JPEG differs from gray where colors are saturated.
TEST(Decode, ConvertsAJpegToGrayLikePillow) {
  for (const char* const suffix : {".jpg", ".png", ".bmp", ".webp", ".tif"}) {
    for (const int64_t side : {64, 32, 7}) {
      const Bytes bytes = encode(random_image(64, 64), suffix);
      const auto decoded = [&](int64_t channels) {
        const EncodedImage image(bytes, "a", {.channels = channels});
        torch::Tensor pixels =
            torch::empty({side, side, channels}, torch::kByte);
        image.decode({side, side}, pixels.mutable_data_ptr<uint8_t>());
        return pixels.to(torch::kLong);
      };
      // Pillow's conversion from RGB to L.
      const torch::Tensor gray =
          (decoded(3) * torch::tensor({19595, 38470, 7471})).sum(-1, true) +
          0x8000;
      const auto worst =
          (decoded(1) - gray.bitwise_right_shift(16)).abs().max();
      EXPECT_LE(worst.item<int64_t>(), 1) << suffix << ' ' << side;
    }
  }
}

TEST(Decode, ConvertsEveryPixelOfAJpegToGray) {
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512}) {
    set_cpu_isa(isa);
    for (const int width : {1, 7, 67, 128}) {
      const Bytes bytes = encode(random_image(45, width), ".jpg");
      const auto decoded = [&](int64_t channels) {
        return decode_image(bytes, "a", {.channels = channels});
      };
      const torch::Tensor colors = decoded(3).reshape({-1, 3}).contiguous();
      const torch::Tensor gray = decoded(1).flatten();
      ASSERT_EQ(gray.numel(), colors.size(0));
      for (int64_t i = 0; i < gray.numel(); ++i) {
        ASSERT_EQ(
            gray.const_data_ptr<uint8_t>()[i],
            gray_of(colors.const_data_ptr<uint8_t>() + 3 * i))
            << "pixel " << i << " of " << width << " x 45";
      }
    }
  }
  set_cpu_isa(best_cpu_isa());
}

TEST(Decode, RejectsADecompressionBombBeforeItAllocates) {
  Bytes bytes = encode(smooth_image(8, 8), ".png");
  // 65536 x 65536 pixels in the header.
  bytes[16] = bytes[20] = 0;
  bytes[17] = bytes[21] = 1;
  bytes[18] = bytes[19] = bytes[22] = bytes[23] = 0;
  const std::string error = error_for(bytes);
  EXPECT_NE(error.find("65536 x 65536"), std::string::npos) << error;
  EXPECT_NE(error.find("max_pixels"), std::string::npos) << error;
}

TEST(Decode, RejectsAnImpossibleNumberOfChannels) {
  const Bytes bytes = encode(smooth_image(8, 8), ".png");
  expect_error<c10::ValueError>(
      [&] { decode_image(bytes, "", {.channels = 2}); },
      {"channels is 2"});
}

torch::Tensor sampled(
    const Bytes& bytes,
    const Warp& warp,
    ImageSize size,
    const DecodeOptions& options = {}) {
  torch::Tensor out =
      torch::empty({size.height, size.width, options.channels}, torch::kByte);
  EncodedImage(bytes, "cat.jpg", options)
      .sample(warp, size, out.data_ptr<uint8_t>());
  return out;
}

TEST(Decode, DecodesARegionIdenticallyToTheWholeImage) {
  for (const std::vector<int>& parameters :
       {std::vector<int>{}, {cv::IMWRITE_JPEG_PROGRESSIVE, 1}}) {
    const Bytes bytes = encode(random_image(203, 311), ".jpg", parameters);
    const torch::Tensor whole = decode_image(bytes);
    for (const auto& [top, left, height, width] :
         {std::tuple{0, 0, 203, 40},
          {17, 33, 64, 100},
          {150, 250, 53, 61},
          {202, 310, 1, 1},
          {0, 100, 5, 5}}) {
      const Warp warp = {.matrix = Matrix3::translation(left, top)};
      EXPECT_TRUE(torch::equal(
          sampled(bytes, warp, {height, width}),
          whole.slice(0, top, top + height).slice(1, left, left + width)))
          << top << " " << left;
    }
  }
}

TEST(Decode, ShrinksARegionLikeTheWholeImage) {
  const Bytes bytes = encode(smooth_image(400, 600), ".jpg");
  for (const double scale : {1.5, 2.0, 4.5, 9.0, 30.0}) {
    const auto inner = Matrix3::scaling(scale, scale);
    const torch::Tensor part = sampled(
        bytes,
        {.matrix = Matrix3::translation(60, 40) * inner},
        {8, 12});
    for (int64_t y = 0; y < 8; ++y) {
      for (int64_t x = 0; x < 12; ++x) {
        const double u = 60 + (static_cast<double>(x) + 0.5) * scale;
        const double v = 40 + (static_cast<double>(y) + 0.5) * scale;
        EXPECT_NEAR(part[y][x][2].item<double>(), 255 * u / 600, 3);
        EXPECT_NEAR(part[y][x][1].item<double>(), 255 * v / 400, 3);
      }
    }
  }
}

TEST(Decode, DetectsATruncatedJpegAlsoBelowTheDecodedRegion) {
  const Bytes bytes = encode(random_image(203, 311), ".jpg");
  const Warp top_left = {.matrix = Matrix3::translation(3, 3)};
  for (size_t percent = 50; percent < 100; ++percent) {
    Bytes cut(
        bytes.begin(),
        bytes.begin() + static_cast<long>(bytes.size() * percent / 100));
    expect_error<DataError>(
        [&] {
          sampled(cut, top_left, {20, 20});
        },
        {"cat.jpg", "truncated"});
    EXPECT_NO_THROW(sampled(cut, top_left, {20, 20}, {.lenient = true}));
  }
  Bytes followed = bytes;
  followed.insert(followed.end(), 1000, 0x5a);
  EXPECT_NO_THROW(sampled(followed, top_left, {20, 20}));
}

TEST(Decode, RejectsAProgressiveJpegWithTooManyScans) {
  Bytes bytes =
      encode(smooth_image(64, 64), ".jpg", {cv::IMWRITE_JPEG_PROGRESSIVE, 1});
  // The last scan, repeated.
  size_t start = bytes.size() - 2;
  while (bytes[start] != 0xff || bytes[start + 1] != 0xda) {
    --start;
  }
  const Bytes scan(bytes.begin() + static_cast<long>(start), bytes.end() - 2);
  bytes.resize(bytes.size() - 2);
  for (int i = 0; i < 600; ++i) {
    bytes.insert(bytes.end(), scan.begin(), scan.end());
  }
  bytes.insert(bytes.end(), {0xff, 0xd9});
  EXPECT_NE(
      error_for(bytes, {.lenient = true}).find("500 scans"),
      std::string::npos);
}

TEST(Decode, ReturnsMaskValuesAsStored) {
  const Bytes gray = encode(random_image(20, 30, CV_8UC1), ".png");
  EXPECT_TRUE(torch::equal(
      decode_image(gray, "", {.channels = 1, .indices = true}),
      tensor_of(cv::imdecode(gray, cv::IMREAD_GRAYSCALE))));
  const Bytes color = encode(smooth_image(8, 8), ".png");
  const Bytes jpeg = encode(smooth_image(8, 8), ".jpg");
  EXPECT_NE(
      error_for(color, {.channels = 1, .indices = true}).find("class indices"),
      std::string::npos);
  EXPECT_NE(
      error_for(jpeg, {.channels = 1, .indices = true}).find("mask as PNG"),
      std::string::npos);
  expect_error<c10::ValueError>(
      [&] { decode_image(gray, "", {.indices = true}); },
      {"or 1 (gray"});
}

}  // namespace
}  // namespace tern::decode_test
