// Masks and points in pixels of the original image instead of the model's
// input.

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <opencv2/core.hpp>
#include <torch/nn/functional/upsampling.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/decode_predictions.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/preprocess.h"
#include "tern/vision/predict/photo_geometry.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/predict/predictor_queue.h"

namespace tern::original_size_test {
namespace {

namespace fs = std::filesystem;
namespace F = torch::nn::functional;
using torch::Tensor;

constexpr int64_t kSide = 16;

ImagePreprocessing preprocessing(const std::string& resize) {
  return {
      .height = kSide,
      .width = kSide,
      .resize = resize,
      .margin = resize == "center_crop" ? 0.25 : 0,
      .padding = "zeros",
      .mean = {0, 0, 0},
      .stddev = {1, 1, 1}};
}

/// Resizes like PyTorch without aligned corners.
Tensor resized(const Tensor& map, int64_t height, int64_t width) {
  return F::interpolate(
      map.unsqueeze(0),
      F::InterpolateFuncOptions()
          .size(std::vector<int64_t>{height, width})
          .mode(torch::kBilinear)
          .align_corners(false))[0];
}

void expect_map(
    const std::string& resize,
    ImageSize photo,
    const Tensor& map,
    const Tensor& expected) {
  SCOPED_TRACE(resize);
  const Tensor found =
      PhotoGeometry(preprocessing(resize), photo).map_on_photo(map);
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_LE((found - expected).abs().max().item<double>(), 1e-5);
}

TEST(PhotoGeometry, ResizesMapsToThePhotoLikePyTorch) {
  const Tensor map = torch::rand({3, kSide, kSide});
  expect_map("squish", {50, 37}, map, resized(map, 50, 37));
  expect_map("squish", {9, 11}, map, resized(map, 9, 11));
  expect_map("exact", {kSide, kSide}, map, map);
  // The photo covers 16 x 8 pixels, with 4 columns of padding on each side.
  expect_map("pad", {40, 20}, map, resized(map.narrow(2, 4, 8), 40, 20));
  expect_map("pad", {12, 24}, map, resized(map.narrow(1, 4, 8), 12, 24));
  // The middle half of the columns; the model did not see the others.
  Tensor cropped = torch::zeros({3, 20, 40});
  cropped.narrow(2, 10, 20).copy_(resized(map, 20, 20));
  expect_map("crop", {20, 40}, map, cropped);
  // Rows are padded by 3; 7 columns on each side are cropped.
  Tensor cut = torch::zeros({3, 10, 30});
  cut.narrow(2, 7, 16).copy_(map.narrow(1, 3, 10));
  expect_map("none", {10, 30}, map, cut);
  // The center 16 x 16 of 20 x 20 is the center 80 x 80 of the photo.
  Tensor middle = torch::zeros({3, 100, 100});
  middle.narrow(1, 10, 80).narrow(2, 10, 80).copy_(resized(map, 80, 80));
  expect_map("center_crop", {100, 100}, map, middle);
}

TEST(PhotoGeometry, AcceptsMapsWhoseResolutionDiffersFromTheInput) {
  const Tensor small = torch::rand({2, 4, 4}), large = torch::rand({2, 64, 64});
  for (const Tensor& map : {small, large}) {
    expect_map("squish", {50, 37}, map, resized(map, 50, 37));
    const int64_t side = map.size(1);
    expect_map(
        "pad",
        {40, 20},
        map,
        resized(map.narrow(2, side / 4, side / 2), 40, 20));
  }
  // A photo smaller than one pixel of the map.
  const Tensor one = torch::rand({1, 1, 1});
  expect_map("pad", {40, 4}, one, one.expand({1, 40, 4}));
}

/// Returns a photo whose red is its x and whose green is its y.
Tensor ramp(int64_t height, int64_t width) {
  const Tensor x = torch::arange(width).expand({height, width});
  const Tensor y = torch::arange(height).unsqueeze(1).expand({height, width});
  return torch::stack({x, y, x}, 2).to(torch::kByte).contiguous();
}

// With every resize method, a pixel of the input shows what the photo has at
// the corresponding point.
TEST(PhotoGeometry, PointsMatchWhatTheInputShows) {
  for (const char* resize : {"squish", "pad", "crop", "none", "center_crop"}) {
    for (const ImageSize size :
         {ImageSize{60, 33}, ImageSize{20, 90}, ImageSize{12, 10}}) {
      SCOPED_TRACE(fmt::format("{} {} x {}", resize, size.height, size.width));
      const ImagePreprocessing what = preprocessing(resize);
      const Tensor input =
          ImagePreprocessor(what).convert(ramp(size.height, size.width));
      const Tensor at = torch::arange(kSide) + 0.5;
      const auto grid = torch::meshgrid({at, at}, "ij");
      const Tensor points =
          PhotoGeometry(what, size)
              .points_on_photo(torch::stack({grid[1], grid[0]}, 2));
      const Tensor seen = input.slice(2, 0, 2).to(torch::kFloat) + 0.5;
      // Except at the edges, where pixels outside have less weight.
      const Tensor last = torch::tensor(
          {static_cast<float>(size.width), static_cast<float>(size.height)});
      const double margin =
          static_cast<double>(std::max(size.height, size.width)) / kSide + 1;
      const Tensor is_inside =
          ((points > margin) & (points < last - margin)).all(2);
      ASSERT_TRUE(is_inside.any().item<bool>());
      EXPECT_LE(
          (points - seen)
              .abs()
              .amax(2)
              .masked_select(is_inside)
              .max()
              .item<double>(),
          1.0);
    }
  }
}

TEST(PhotoGeometry, BoxesMapByTheirCornersAndAreClippedToThePhoto) {
  const PhotoGeometry geometry(preprocessing("squish"), {40, 64});
  EXPECT_TRUE(torch::allclose(
      geometry.boxes_on_photo(
          torch::tensor({{1.f, 2.f, 3.f, 4.f}, {-2.f, 8.f, 17.f, 99.f}})),
      torch::tensor({{4.f, 5.f, 12.f, 10.f}, {0.f, 20.f, 64.f, 40.f}})));
  expect_error<c10::ValueError>(
      [&] { geometry.boxes_on_photo(torch::zeros({3})); },
      {"boxes_on_photo", "[..., 4]"});
}

TEST(PhotoGeometry, RejectsWhatItCannotConvert) {
  const PhotoGeometry geometry(preprocessing("pad"), {40, 20});
  expect_error<c10::ValueError>(
      [&] {
        geometry.points_on_photo(torch::zeros({4, 3}));
      },
      {"[4, 3] Float", "[..., 2]"});
  expect_error<c10::ValueError>(
      [&] {
        geometry.map_on_photo(torch::zeros({4, 4}));
      },
      {"[4, 4] Float", "[C, h, w]"});
  expect_error<c10::ValueError>(
      [&] {
        PhotoGeometry(preprocessing("pad"), {0, 20});
      },
      {"size is 0 x 20"});
  expect_error<c10::ValueError>(
      [&] {
        PhotoGeometry(preprocessing("exact"), {40, 20});
      },
      {"40 x 20", "16 x 16, the only size"});
}

/// Marks bright pixels at half the resolution, and returns the mean brightness.
struct BrightImpl : torch::nn::Module {
  explicit BrightImpl(int64_t channels) : channels(channels) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& image) {
    const Tensor logit =
        20 * (torch::avg_pool2d(image.mean(1, /*keepdim=*/true), 2) - 0.5);
    const Tensor mask =
        channels == 1 ? logit : torch::cat({-logit / 2, logit / 2}, 1);
    return {mask, image.mean({1, 2, 3}).unsqueeze(1)};
  }
  int64_t channels;
};

class OriginalSize : public testing::Test {
 protected:
  static Predictor predictor(
      const std::string& resize,
      PredictorOptions options = {},
      Activation activation = Activation::softmax,
      int64_t channels = 2) {
    options.device = torch::kCPU;
    ModelCard card{
        .outputs =
            {{.kind = TargetKind::mask,
              .names = {"dark", "bright"},
              .activation = activation},
             {.kind = TargetKind::number, .activation = Activation::none}},
        .preprocessing = preprocessing(resize)};
    card.preprocessing->height = card.preprocessing->width = 64;
    return {std::make_shared<BrightImpl>(channels), card, options};
  }

  /// Returns a black photo with a white rectangle.
  static cv::Mat photo() {
    cv::Mat image(120, 80, CV_8UC3, cv::Scalar::all(0));
    image(cv::Rect(20, 30, 40, 60)).setTo(cv::Scalar::all(255));
    return image;
  }

  static Tensor white_of(const cv::Mat& image) {
    cv::Mat bytes;
    cv::extractChannel(image, bytes, 0);
    const Tensor pixels =
        torch::from_blob(bytes.data, {bytes.rows, bytes.cols}, torch::kByte);
    return (pixels > 127).to(torch::kLong);
  }

  /// Expects a mask up to a pixel or two at the edges.
  static void expect_mask(
      const Prediction& prediction,
      const Tensor& expected) {
    ASSERT_EQ(prediction.kind, TargetKind::mask);
    ASSERT_EQ(prediction.mask.sizes(), expected.sizes());
    EXPECT_EQ(prediction.mask.scalar_type(), torch::kLong);
    EXPECT_LT(
        (prediction.mask != expected).to(torch::kFloat).mean().item<double>(),
        0.03);
    EXPECT_EQ(prediction.probabilities.size(1), expected.size(0));
    EXPECT_EQ(prediction.probabilities.size(2), expected.size(1));
  }

  TempFolder temp_;
  const PredictorOptions original_{.original_size = true};
};

TEST_F(OriginalSize, AMaskMatchesThePhoto) {
  const cv::Mat image = photo();
  const Tensor white = white_of(image);
  const fs::path file = temp_ / "a.png";
  write_file(file, encode(image, ".png"));
  const Tensor rgb =
      torch::from_blob(image.data, {image.rows, image.cols, 3}, torch::kByte);
  for (const char* resize : {"squish", "pad", "crop", "center_crop", "none"}) {
    SCOPED_TRACE(resize);
    const Predictor own = predictor(resize, original_);
    PredictorQueue queue(own);
    Tensor expected = white.clone();
    if (resize == std::string("none")) {  // 64 of 80 columns and of 120 rows
      expected.narrow(0, 0, 28).zero_();
      expected.narrow(0, 92, 28).zero_();
    }
    expect_mask(own.predict(file), expected);
    expect_mask(own.predict(image), expected);
    expect_mask(own.predict(rgb), expected);
    expect_mask(own.predict(Tensors{rgb}), expected);
    expect_mask(own.predict_batch(std::vector<cv::Mat>{image})[0], expected);
    expect_mask(own.predict_folder(temp_.path())[0].prediction, expected);
    expect_mask(queue.submit(file).get(), expected);
    EXPECT_EQ(to_string(own.predict(file)).substr(0, 16), "mask of 120 x 80");
    // The mean brightness is unaffected.
    const Prediction plain = predictor(resize).predict(file);
    EXPECT_EQ(plain.mask.sizes(), (std::vector<int64_t>{32, 32}));
    EXPECT_EQ(own.predict(file).outputs[1].numbers, plain.outputs[1].numbers);
    expect_mask(own.predict(file).outputs[0], expected);
  }
}

TEST_F(OriginalSize, ABatchMayHavePhotosOfSeveralSizes) {
  const Predictor own = predictor("pad", original_);
  std::vector<cv::Mat> images;
  for (const int width : {70, 200, 81}) {
    cv::Mat image(90, width, CV_8UC3, cv::Scalar::all(0));
    image(cv::Rect(10, 20, 50, 40)).setTo(cv::Scalar::all(255));
    images.push_back(image);
  }
  const auto predictions = own.predict_batch(images);
  for (size_t i = 0; i < images.size(); ++i) {
    expect_mask(predictions[i], white_of(images[i]));
  }
}

TEST_F(OriginalSize, CroppedPixelsHaveClass0AndProbability0) {
  cv::Mat image(40, 120, CV_8UC3, cv::Scalar::all(255));
  const Prediction prediction = predictor("crop", original_).predict(image);
  const Tensor seen = torch::zeros({40, 120}, torch::kLong);
  seen.narrow(1, 40, 40).fill_(1);
  EXPECT_TRUE(torch::equal(prediction.mask, seen));
  EXPECT_TRUE(torch::equal(
      prediction.probabilities.sum(0) > 0.99,
      seen.to(torch::kBool)));
  EXPECT_EQ(prediction.probabilities.narrow(2, 0, 40).sum().item<double>(), 0);
}

TEST_F(OriginalSize, APhotoWithExifOrientationHasItsUprightSize) {
  const cv::Mat image = photo();
  const fs::path file = temp_ / "turned.jpg";
  write_file(file, with_orientation(encode(image, ".jpg"), 6));
  // A clockwise rotation by 90 degrees.
  const Tensor turned = white_of(image).rot90(-1);
  expect_mask(predictor("squish", original_).predict(file), turned);
  expect_mask(predictor("pad", original_).predict(file), turned);
}

TEST_F(OriginalSize, SupportsSigmoidsAndLowerPrecisions) {
  const cv::Mat image = photo();
  const Tensor white = white_of(image);
  expect_mask(
      predictor("pad", original_, Activation::sigmoid, 1).predict(image),
      white);
  const Prediction several =
      predictor("pad", original_, Activation::sigmoid, 2).predict(image);
  EXPECT_EQ(several.mask.sizes(), (std::vector<int64_t>{2, 120, 80}));
  EXPECT_LT(
      (several.mask[1] != white).to(torch::kFloat).mean().item<double>(),
      0.03);
  for (const bool exact : {true, false}) {
    expect_mask(
        predictor(
            "pad",
            {.precision = torch::kBFloat16,
             .exact = exact,
             .original_size = true})
            .predict(image),
        white);
  }
}

TEST_F(OriginalSize, AnInputTensorKeepsTheModelsSize) {
  const Predictor own = predictor("pad", original_);
  EXPECT_EQ(
      own.predict(torch::rand({3, 64, 64})).mask.sizes(),
      (std::vector<int64_t>{32, 32}));
  const PreparedSample sample = own.prepare_sample(photo());
  EXPECT_EQ(sample.photo, ImageSize(120, 80));
  expect_mask(own.predict_prepared({sample})[0], white_of(photo()));
  expect_error<c10::ValueError>(
      [&] {
        Predictor(
            std::make_shared<BrightImpl>(1),
            {},
            {.device = torch::kCPU, .original_size = true});
      },
      {"original_size is set", "ExportOptions::preprocessing"});
}

// The photo of 40 x 80 pixels becomes 8 x 16, between 4 rows of padding.
TEST(PhotoGeometry, DetectionsInThePaddingAreDropped) {
  const PhotoGeometry geometry(preprocessing("pad"), {40, 80});
  const Tensors detections = {
      torch::tensor(
          {{2.f, 0.f, 6.f, 3.f},
           {1.f, 2.f, 3.f, 6.f},
           {0.f, 4.f, 16.f, 12.f},
           {0.f, 0.f, 0.f, 0.f}}),
      torch::tensor({0.9f, 0.8f, 0.7f, 0.f}),
      torch::tensor({0, 1, 2, -1})};
  const Tensors found = geometry.detections_on_photo(detections);
  EXPECT_TRUE(torch::allclose(
      found[0],
      torch::tensor(
          {{5.f, 0.f, 15.f, 10.f},
           {0.f, 0.f, 80.f, 40.f},
           {0.f, 0.f, 0.f, 0.f},
           {0.f, 0.f, 0.f, 0.f}})))
      << found[0];
  EXPECT_TRUE(torch::equal(found[1], torch::tensor({0.8f, 0.7f, 0.f, 0.f})));
  EXPECT_TRUE(torch::equal(found[2], torch::tensor({1, 2, -1, -1})));
  expect_error<c10::ValueError>(
      [&] { geometry.detections_on_photo({detections[0]}); },
      {"detections_on_photo", "[D, 4]"});
}

}  // namespace
}  // namespace tern::original_size_test
