#include "tern/vision/detection_learner.h"

#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>
#include <torch/types.h>

#include "tern/learner/decode_predictions.h"
#include "tern/learner/detections.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/shades.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/interpret/picture_grid.h"
#include "tern/vision/interpret/show.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/predict/image_predict.h"
#include "tern/vision/predict/predictor.h"

namespace tern::detection_learner_test {
namespace {

using namespace testing_support;  // NOLINT

/// Images of 64 x 96 with a square, dark or light.
class DetectionLearnerTest : public testing::Test {
 protected:
  DetectionLearnerTest() {
    for (int i = 0; i < 12; ++i) {
      const int x = 8 * i % 60, y = 5 * i % 30, side = 32;
      const bool is_light = i % 2 == 0;
      cv::Mat image(64, 96, CV_8UC3, cv::Scalar(127, 127, 127));
      const double shade = is_light ? 255 : 0;
      cv::rectangle(
          image,
          cv::Rect(x, y, side, side),
          {shade, shade, shade},
          -1);
      const auto path = (temp_ / (std::to_string(i) + ".png")).string();
      write_file(path, encode(image, ".png"));
      squares_.images.push_back(
          {path,
           {{{static_cast<double>(x),
              static_cast<double>(y),
              static_cast<double>(x + side),
              static_cast<double>(y + side),
              is_light ? "light" : "dark"}},
            {64, 96}}});
    }
  }

  DataBunch data() const {
    const DataBlock block{
        .items = squares_.items(),
        .split = split_at_random(0.25, 1),
        .boxes = squares_.labeller()};
    return block.bunch(
        {.size = 64,
         .resize = ResizeMethod::pad,
         .padding = Padding::zeros,
         .batch_size = 4,
         .workers = 0,
         .device = torch::kCPU});
  }

  Learner learner(DetectionLearnerOptions options = {}) const {
    options.learner = quiet(options.learner);
    options.learner.seed = 1;
    return detection_learner(data(), "retinanet_resnet18_fpn", options);
  }

  TempFolder temp_;
  BoxAnnotations squares_;
};

TEST_F(DetectionLearnerTest, LearnsWithTheLossAndMetricsOfDetection) {
  Learner learn = learner();
  learn.fit(1, 1e-4);
  const double before = learn.recorder().losses().front();
  learn.fit(2, 1e-3);
  EXPECT_LT(learn.recorder().losses().back(), before);
  const Validation valid = learn.validate();
  ASSERT_EQ(valid.metrics.size(), 2u);
  EXPECT_GE(valid["map_50"], valid["map"]);
  EXPECT_GE(valid["map"], 0);
}

TEST_F(DetectionLearnerTest, AnswersWithBoxesScoresAndLabels) {
  Learner learn = learner();
  const Predictions answers = learn.get_preds(Split::valid);
  ASSERT_EQ(answers.outputs.size(), 3u);
  EXPECT_EQ(
      answers.outputs[0].sizes().vec(),
      (std::vector<int64_t>{3, 300, 4}));
  EXPECT_EQ(answers.outputs[1].sizes().vec(), (std::vector<int64_t>{3, 300}));
  EXPECT_EQ(answers.outputs[2].scalar_type(), torch::kLong);
  ASSERT_EQ(answers.all_targets.size(), 5u);

  // As many as the options allow, with the scores that they ask for.
  learn.data().outputs[0].detection = {
      .score_thresh = 0,
      .detections_per_img = 7};
  learn.data().outputs[0].threshold = 0;
  const Prediction one = learn.predict(
      learn.data().valid->dataset().get_batch({0}, {}).inputs[0][0]);
  EXPECT_EQ(one.kind, TargetKind::boxes);
  EXPECT_EQ(one.boxes.sizes().vec(), (std::vector<int64_t>{7, 4}));
  EXPECT_EQ(one.scores.size(), 7u);
  EXPECT_GE(one.scores[0], one.scores[6]);
  EXPECT_TRUE(one.labels[0] == "dark" || one.labels[0] == "light");
  expect_error<c10::ValueError>(
      [&] { learn.tta(Split::valid); },
      {"[Learner::tta]", "get_preds"});
}

TEST_F(DetectionLearnerTest, APredictorGivesBoxesOfThePhotograph) {
  Learner learn = learner();
  learn.data().outputs[0].detection = {
      .score_thresh = 0,
      .detections_per_img = 5};
  learn.data().outputs[0].threshold = 0;
  learn.export_model(temp_ / "squares.safetensors");
  for (const bool exact : {true, false}) {
    const Predictor predictor = Predictor::load(
        temp_ / "squares.safetensors",
        {.device = torch::kCPU, .exact = exact});
    const std::string& path = squares_.images[0].path;
    const Prediction on_input =
        learn.predict(prepare_image(learn.data(), std::filesystem::path(path)));
    const Prediction on_photo = predictor.predict(path);
    EXPECT_EQ(on_photo.labels, on_input.labels);
    EXPECT_TRUE(torch::allclose(
        learn.predict(std::filesystem::path(path)).boxes,
        on_photo.boxes,
        0,
        0.05));
    ASSERT_EQ(on_photo.boxes.sizes(), on_input.boxes.sizes());
    // 96 wide became 64, and 64 high 43 below 10 rows of padding.
    torch::Tensor expected = on_input.boxes.clone();
    expected = (expected + torch::tensor({0.f, -11.f, 0.f, -11.f})) *
               torch::tensor({1.5f, 64 / 43.f, 1.5f, 64 / 43.f});
    expected.select(1, 1).clamp_(0, 64);
    expected.select(1, 3).clamp_(0, 64);
    EXPECT_TRUE(torch::allclose(on_photo.boxes, expected, 0, 0.05))
        << on_photo.boxes << expected;
  }
}

TEST_F(DetectionLearnerTest, HasThreeLayerGroupsOfWhichWeightsFreezeTwo) {
  const auto first_trained = [](Learner& learn) {
    for (const ModelTensor& parameter : learn.model().parameters()) {
      const bool is_norm = parameter.tensor.dim() == 1;
      if (parameter.tensor.requires_grad() && !is_norm) return parameter.name;
    }
    return std::string("none");
  };
  Learner learn = learner();
  EXPECT_EQ(parts_of(learn).groups.size(), 3u);
  EXPECT_EQ(first_trained(learn), "backbone.body.conv1.weight");
  learn.freeze_to(1);
  EXPECT_EQ(first_trained(learn), "backbone.body.layer3.0.conv1.weight");

  const Model body = VisionArch(resnet18).make_body(3).module;
  const StateDict weights = body.state_dict();
  save_safetensors(temp_ / "body.safetensors", weights);
  Learner frozen = learner(
      {.pretrained = DetectorWeights::imagenet,
       .file = temp_ / "body.safetensors"});
  EXPECT_EQ(first_trained(frozen), "backbone.fpn.inner_blocks.0.0.weight");
  EXPECT_TRUE(torch::equal(
      frozen.state_dict()["backbone.body.conv1.weight"],
      weights["conv1.weight"]));
}

TEST_F(DetectionLearnerTest, TrainsIn16Bits) {
  for (const bool amp : {false, true}) {
    Learner learn = learner();
    if (amp) {
      learn.to_amp();
    } else {
      learn.to_bf16();
    }
    learn.fit(1, 1e-3);
    EXPECT_TRUE(std::isfinite(learn.recorder().losses().back()));
    const Predictions answers = learn.get_preds(Split::valid);
    EXPECT_EQ(answers.outputs[0].scalar_type(), torch::kFloat);
  }
}

TEST_F(DetectionLearnerTest, PicturesShowBoxesInTheColoursOfTheirClasses) {
  Learner learn = learner();
  learn.data().outputs[0].detection.score_thresh = 0;
  learn.data().outputs[0].detection.detections_per_img = 3;
  learn.data().outputs[0].threshold = 0;
  const auto shows = [&](const char* file, int64_t index) {
    return has_color(read_image((temp_ / file).string()), class_colour(index));
  };
  show_batch(learn.data(), temp_ / "batch.png", Split::train, {.count = 4});
  EXPECT_TRUE(shows("batch.png", 0));
  EXPECT_TRUE(shows("batch.png", 1));
  EXPECT_FALSE(shows("batch.png", 2));
  show_results(learn, temp_ / "results.png", Split::valid, {.count = 2});
  EXPECT_TRUE(shows("results.png", 0) || shows("results.png", 1));
}

TEST_F(DetectionLearnerTest, SaysWhatItNeeds) {
  const Shades shades;
  expect_error<c10::ValueError>(
      [&] { detection_learner(shades.data(), "retinanet_resnet18_fpn"); },
      {"[detection_learner] the data have no boxes", "labeller"});
  expect_error<c10::ValueError>(
      [&] { detection_learner(data(), "yolo"); },
      {"yolo", "retinanet_resnet18_fpn"});
  DataBunch unnamed = data();
  unnamed.classes.clear();
  expect_error<c10::ValueError>(
      [&] { detection_learner(unnamed, "retinanet_resnet18_fpn"); },
      {"classes is 0", ".classes"});
  // Without a loss, a Learner of one's own says which there is.
  Learner learn(data(), detection_model("retinanet_resnet18_fpn", 2), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"no loss was given", "retinanet_loss()"});
}

}  // namespace
}  // namespace tern::detection_learner_test
