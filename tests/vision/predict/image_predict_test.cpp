#include "tern/vision/predict/image_predict.h"

#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>
#include <torch/nn/modules/loss.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/transforms/get_transforms.h"

namespace tern::image_predict_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(PrepareImage, MatchesValidation) {
  const Shades shades;
  write_image(shades / "valid/dark/photo.png", 60, 45);
  for (const ResizeMethod resize :
       {ResizeMethod::crop, ResizeMethod::pad, ResizeMethod::squish}) {
    const DataBunch data = shades.data(
        {.size = ImageSize{20, 20},
         .transforms = get_transforms(),
         .resize = resize});
    const auto& images =
        dynamic_cast<const ImageDataset&>(data.valid->dataset());
    for (int64_t i = 0; i < images.size(); ++i) {
      const torch::Tensor expected = images.get_batch({i}, {}).inputs[0][0];
      const std::string& path = images.paths()[static_cast<size_t>(i)];
      EXPECT_TRUE(torch::equal(prepare_image(data, path), expected)) << path;
      EXPECT_TRUE(torch::equal(prepare_image(data, read_image(path)), expected))
          << path;
      EXPECT_TRUE(torch::equal(prepare_image(data, cv::imread(path)), expected))
          << path;
    }
  }
}

/// Returns an image similar to a photo: large colored shapes and fine detail.
cv::Mat photo() {
  const auto noise = [](int type, double sigma, double contrast) {
    cv::Mat image(400, 533, type);
    cv::RNG(1).fill(image, cv::RNG::UNIFORM, 0, 256);
    cv::GaussianBlur(image, image, {}, sigma);
    cv::Mat wide;
    image.convertTo(wide, CV_32F, contrast, 128 * (0.5 - contrast));
    return wide;
  };
  cv::Mat detail;
  cv::cvtColor(noise(CV_8UC1, 1.5, 1), detail, cv::COLOR_GRAY2BGR);
  cv::Mat bytes;
  cv::Mat(noise(CV_8UC3, 8, 12) + detail).convertTo(bytes, CV_8U);
  return bytes;
}

// At a sixteenth or less, a file is decoded at a smaller scale, and the pixels
// of a cv::Mat are averaged by the same factor.
TEST(PrepareImage, IsTheSameForAJpegAndItsPixels) {
  const Shades shades;
  const std::filesystem::path file = shades / "photo.jpg";
  write_file(file, encode(photo(), ".jpg", {cv::IMWRITE_JPEG_QUALITY, 90}));
  for (const int64_t size : {230, 190, 128, 96, 64, 56, 40, 16}) {
    const DataBunch data =
        shades.data({.size = size, .resize = ResizeMethod::crop});
    const torch::Tensor of_file = prepare_image(data, file);
    const torch::Tensor difference =
        of_file.to(torch::kFloat) - prepare_image(data, cv::imread(file));
    EXPECT_LE(difference.abs().max().item<double>(), size == 16 ? 2 : 0)
        << size;
    EXPECT_LT(difference.abs().mean().item<double>(), 1) << size;
    EXPECT_GT(of_file.to(torch::kFloat).std().item<double>(), 10) << size;
  }
}

// imread rotates it before it is resized.
TEST(PrepareImage, DiffersByAtMostOneForAJpegWithOrientationAndItsPixels) {
  const Shades shades;
  const std::filesystem::path file = shades / "photo.jpg";
  for (const uint8_t orientation : {2, 3, 4, 5, 6, 7, 8}) {
    write_file(
        file,
        with_orientation(
            encode(photo(), ".jpg", {cv::IMWRITE_JPEG_QUALITY, 90}),
            orientation));
    for (const int64_t size : {230, 128, 64, 40}) {
      const DataBunch data =
          shades.data({.size = size, .resize = ResizeMethod::crop});
      const torch::Tensor difference =
          prepare_image(data, file).to(torch::kFloat) -
          prepare_image(data, cv::imread(file));
      EXPECT_LE(difference.abs().max().item<double>(), 1)
          << "orientation " << int{orientation} << ", size " << size;
    }
  }
}

TEST(PrepareImage, UsesTheSizeOfTheDataByDefault) {
  const Shades shades;
  write_image(shades / "other.png", 33, 47);
  EXPECT_EQ(
      prepare_image(shades.data(), shades / "other.png").sizes(),
      (std::vector<int64_t>{20, 20, 3}));
}

TEST(PrepareImage, UnwrapsSubsetsAndConcats) {
  const Shades shades;
  write_image(shades / "other.png", 33, 47);
  DataBunch data = shades.data();
  const torch::Tensor expected = prepare_image(data, shades / "other.png");
  const auto part = std::make_shared<Subset>(
      data.valid->dataset_ptr(),
      std::vector<int64_t>{0});
  data.valid = std::make_shared<DataLoader>(std::make_shared<Concat>(
      std::vector<std::shared_ptr<const Dataset>>{part}));
  EXPECT_TRUE(
      torch::equal(prepare_image(data, shades / "other.png"), expected));
}

TEST(PrepareImage, AcceptsGrayBgrAndBgraMats) {
  const Shades shades;
  const DataBunch data = shades.data();
  const cv::Mat bgr(20, 20, CV_8UC3, cv::Scalar(10, 20, 30));
  const auto first = [&](const cv::Mat& mat) {
    return prepare_image(data, mat)[0][0];
  };
  const torch::Tensor rgb = torch::tensor({30, 20, 10}, torch::kByte);
  EXPECT_TRUE(torch::equal(first(bgr), rgb));
  const cv::Mat bgra(20, 20, CV_8UC4, cv::Scalar(10, 20, 30, 0));
  EXPECT_TRUE(torch::equal(first(bgra), rgb));
  const cv::Mat gray(20, 20, CV_8UC1, cv::Scalar(7));
  EXPECT_TRUE(torch::equal(first(gray), torch::full({3}, 7, torch::kByte)));
  // A region of an image, whose rows are not contiguous.
  const cv::Mat wide(40, 60, CV_8UC3, cv::Scalar(10, 20, 30));
  EXPECT_TRUE(torch::equal(first(wide(cv::Rect(5, 5, 20, 20))), rgb));
}

TEST(PrepareImage, Divides16BitMatsBy257) {
  const Shades shades;
  const DataBunch data = shades.data();
  const auto first = [&](int type, const cv::Scalar& color) {
    return prepare_image(data, cv::Mat(20, 20, type, color))[0][0];
  };
  const auto rgb = [](int r, int g, int b) {
    return torch::tensor({r, g, b}, torch::kByte);
  };
  // Rounded: 51272 / 257 is 199.502, 51271 / 257 is 199.498.
  const cv::Scalar deep(65535, 51272, 51271, 0);
  EXPECT_TRUE(torch::equal(first(CV_16UC3, deep), rgb(199, 200, 255)));
  EXPECT_TRUE(torch::equal(first(CV_16UC4, deep), rgb(199, 200, 255)));
  EXPECT_TRUE(
      torch::equal(first(CV_16UC1, cv::Scalar(250 * 257)), rgb(250, 250, 250)));
}

TEST(PrepareImage, ConvertsToGrayForAGrayModel) {
  const Shades shades;
  const DataBunch data = shades.data({.decode = {.channels = 1}});
  const torch::Tensor gray = prepare_image(
      data,
      torch::tensor({100, 50, 200}, torch::kByte).expand({20, 20, 3}));
  EXPECT_EQ(gray.sizes(), (std::vector<int64_t>{20, 20, 1}));
  EXPECT_EQ(gray[0][0][0].item<int64_t>(), 82);  // 29.9 + 29.35 + 22.8
}

TEST(PrepareImage, RejectsInvalidImages) {
  const Shades shades;
  const DataBunch data = shades.data();
  expect_error<c10::ValueError>(
      [&] {
        prepare_image(data, torch::rand({3, 8, 8}));
      },
      {"[3, 8, 8] Float", "kByte"});
  expect_error<c10::ValueError>(
      [&] { prepare_image(data, cv::Mat()); },
      {"cv::Mat is 0 x 0"});
  expect_error<c10::ValueError>(
      [&] { prepare_image(data, cv::Mat(4, 4, CV_32FC3)); },
      {"[prepare_image]", "4 x 4 of CV_32FC3", "8 or 16 bits"});
  expect_error<IoError>(
      [&] { prepare_image(data, shades / "none.png"); },
      {"none.png"});
  expect_error<c10::ValueError>(
      [&] { prepare_image(point_data(), shades / "valid/dark/10.png"); },
      {"not image files", "ImageDataBunch"});
}

TEST(PredictImage, AcceptsFileMatAndTensor) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const std::filesystem::path file = shades / "valid/light/240.png";
  EXPECT_EQ(learn.predict(file).label, "light");
  EXPECT_EQ(learn.predict(cv::imread(file.string())).label, "light");
  EXPECT_EQ(
      learn.predict(prepare_image(learn.data(), read_image(file.string())))
          .index,
      1);
  EXPECT_EQ(learn.predict(shades / "valid/dark/10.png").label, "dark");
}

TEST(PredictImages, PredictAllImagesOfAFolder) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const ImagePredictions predicted = get_preds(learn, shades / "valid");
  ASSERT_EQ(predicted.paths.size(), 6u);
  EXPECT_EQ(predicted.preds.sizes(), (std::vector<int64_t>{6, 2}));
  for (size_t i = 0; i < 6; ++i) {
    const Prediction one = learn.predict(predicted.paths[i]);
    EXPECT_EQ(predicted.labels[i], one.label) << predicted.paths[i];
    EXPECT_TRUE(torch::allclose(
        predicted.preds[static_cast<int64_t>(i)],
        one.probabilities));
  }
}

TEST(PredictImages, NameAllLabelsAboveTheThreshold) {
  const Shades shades;
  DataBunch data = shades.data();
  data.outputs = {{.kind = TargetKind::multi_category, .threshold = 0.2}};
  Learner learn(
      data,
      Shades::net(),
      quiet({.loss = torch::nn::BCEWithLogitsLoss()}));
  const std::filesystem::path file = shades / "valid/light/240.png";
  // Logits of 1.5 - 3 * 0.94 and the negative of this.
  EXPECT_EQ(learn.predict(file).label, "dark, light");
  learn.data().outputs[0].threshold = 0.5;
  EXPECT_EQ(learn.predict(file).label, "light");
  const ImagePredictions predicted = get_preds(learn, shades / "valid/light");
  EXPECT_EQ(predicted.predictions[2].labels, std::vector<std::string>{"light"});
  EXPECT_EQ(predicted.labels[2], "light");
}

TEST(PredictImages, ABadFileIsAnErrorAndNotReplacedByAnother) {
  const Shades shades;
  Learner learn(
      shades.data({.bad_images = BadImagePolicy::skip(0.9)}),
      Shades::net(),
      quiet());
  write_file(shades / "valid/dark/bad.png", "no image");
  expect_error<DataError>(
      [&] { get_preds(learn, shades / "valid"); },
      {"bad.png"});
}

TEST(PredictImages, NameAFolderWithoutImages) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  make_folders(shades / "empty");
  expect_error<DataError>(
      [&] { get_preds(learn, shades / "empty"); },
      {"empty", "no image"});
}

}  // namespace
}  // namespace tern::image_predict_test
