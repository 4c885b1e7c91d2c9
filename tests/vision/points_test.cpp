// Points, from a labeller through a Learner to pixels of the original image.

#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>
#include <torch/types.h>

#include "tern/learner/decode_predictions.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/losses/losses.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/shades.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/show.h"
#include "tern/vision/predict/image_predict.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/vision_learner.h"

namespace tern::points_test {
namespace {

using namespace testing_support;  // NOLINT

/// Images of 40 x 60 pixels with a white square. Its upper left and lower right
/// corners are the points.
class PointsTest : public testing::Test {
 protected:
  PointsTest() {
    for (int i = 0; i < 64; ++i) {
      const int x = 2 + 7 * i % 43, y = 1 + 5 * i % 26;
      cv::Mat image(40, 60, CV_8UC3, cv::Scalar(0, 0, 0));
      cv::rectangle(image, cv::Rect(x, y, 14, 12), {255, 255, 255}, -1);
      const auto path = (temp_ / (std::to_string(i) + ".png")).string();
      write_file(path, encode(image, ".png"));
      places_[path] = {
          {static_cast<double>(x), static_cast<double>(y)},
          {x + 14.0, y + 12.0}};
    }
  }

  DataBunch data(ImageDataBunchOptions options = {}) const {
    options.size = 32;
    options.resize = ResizeMethod::pad;
    options.batch_size = 8;
    options.workers = 0;
    options.device = torch::kCPU;
    const DataBlock block{
        .items = items_from_folder(temp_.path()),
        .split = split_at_random(0.25, 1),
        .classes = {"first", "last"},
        .points = [this](const ImageItem& item) {
          return places_.at(item.path);
        }};
    return block.bunch(options);
  }

  Learner learner(const ImageDataBunchOptions& options = {}) const {
    return vision_learner(
        data(options),
        resnet18,
        {.head = {.dropout = 0}, .learner = quiet({.seed = 1})});
  }

  TempFolder temp_;
  std::map<std::string, std::vector<Point>> places_;
};

TEST_F(PointsTest, VisionLearnerLearnsThem) {
  Learner learn = learner();
  EXPECT_EQ(
      learn.model()
          .forward(Tensors{torch::zeros({2, 3, 32, 32})})
          .at(0)
          .sizes()
          .vec(),
      (std::vector<int64_t>{2, 2, 2}));
  const double before = learn.validate().loss;
  learn.fit_one_cycle(12, 2e-3);
  const double after = learn.validate().loss;
  EXPECT_LT(after, 0.7 * before);
  // Mean distance along an axis, in pixels, of the predictions of get_preds.
  const Predictions predictions = learn.get_preds(Split::valid);
  EXPECT_NEAR(
      (predictions.preds - predictions.targets).abs().mean().item<double>(),
      after,
      1e-4);
  expect_error<c10::ValueError>(
      [&] { learn.tta(Split::valid); },
      {"[Learner::tta]", "boxes or points", "get_preds"});
}

TEST_F(PointsTest, PredictorReturnsPixelsOfThePhoto) {
  Learner learn = learner();
  learn.export_model(temp_ / "points.safetensors");
  const Predictor predictor = Predictor::load(
      temp_ / "points.safetensors",
      {.device = torch::kCPU, .exact = true});
  EXPECT_EQ(predictor.card().outputs.at(0).kind, TargetKind::points);
  for (const bool traced : {false, true}) {
    expect_error<c10::ValueError>(
        [&] {
          learn.export_model(
              temp_ / "refused.safetensors",
              {.python_loader = true, .traced = traced});
        },
        {"boxes or points", "Omit python_loader"});
  }
  const std::string path = places_.begin()->first;
  const Prediction on_input =
      learn.predict(prepare_image(learn.data(), std::filesystem::path(path)));
  const Prediction on_photo = predictor.predict(path);
  for (const Prediction& same :
       {learn.predict(std::filesystem::path(path)),
        get_preds(learn, std::vector<std::string>{path}).predictions[0]}) {
    EXPECT_TRUE(torch::allclose(same.points, on_photo.points, 0, 1e-3));
    EXPECT_EQ(same.label, on_photo.label);
  }
  // The width of 60 became 32, and the height of 40 became 21, between 5 and 6
  // rows of padding.
  const torch::Tensor scale = torch::tensor({60 / 32.0, 40 / 21.0});
  const torch::Tensor offset = torch::tensor({0.0, -6.0});
  EXPECT_TRUE(torch::allclose(
      on_photo.points.to(torch::kDouble),
      (on_input.points.to(torch::kDouble) + offset) * scale,
      0,
      1e-3))
      << on_photo.points << on_input.points;
  EXPECT_EQ(on_photo.label.find("first ("), 0u);
}

TEST_F(PointsTest, PlotsShowThemWithTheirNames) {
  Learner learn = learner();
  const auto shows = [&](const char* file, int64_t point) {
    return has_color(read_image((temp_ / file).string()), class_color(point));
  };
  show_batch(learn.data(), temp_ / "batch.png", Split::valid, {.count = 2});
  show_results(learn, temp_ / "results.png", Split::valid, {.count = 2});
  for (const char* file : {"batch.png", "results.png"}) {
    EXPECT_TRUE(shows(file, 0)) << file;
    EXPECT_TRUE(shows(file, 1)) << file;
    EXPECT_FALSE(shows(file, 2)) << file;
  }
}

TEST_F(PointsTest, KeepFractionalPixelsIn16Bits) {
  Learner learn = learner();
  learn.to_bf16();
  learn.fit(1, 1e-3);
  const torch::Tensor preds = learn.get_preds(Split::valid).preds;
  // bfloat16 has a step of 1/8 from 16 on.
  EXPECT_GT((preds * 8).frac().abs().max().item<double>(), 0.01);
}

}  // namespace
}  // namespace tern::points_test
