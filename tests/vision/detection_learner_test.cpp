#include "tern/vision/detection_learner.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/mix.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/detections.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/metrics/mean_average_precision.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/shades.h"
#include "tern/tests/vision/squares.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/show.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/predict/image_predict.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::detection_learner_test {
namespace {

using namespace testing_support;  // NOLINT

class DetectionLearnerTest : public testing::Test {
 protected:
  Learner learner(const DetectionLearnerOptions& options = {}) const {
    return squares_.learner(options);
  }

  Squares squares_;
};

/// Records the outputs it receives in `seen`, which copies share.
class SeenOutputs final : public MetricImpl {
 public:
  explicit SeenOutputs(bool takes_detections)
      : takes_detections_(takes_detections) {}
  std::string name() const override {
    return takes_detections_ ? "seen_detections" : "seen_outputs";
  }
  bool higher_is_better() const override { return true; }
  bool takes_detections() const override { return takes_detections_; }
  void reset() override {}
  void update(const Tensors& outputs, const Tensors&) override {
    seen->push_back(outputs);
  }
  torch::Tensor compute() const override {
    return torch::zeros({}, torch::kDouble);
  }

  std::shared_ptr<std::vector<Tensors>> seen =
      std::make_shared<std::vector<Tensors>>();

 private:
  bool takes_detections_;
};

TEST_F(DetectionLearnerTest, MetricsReceiveTheDetectionsOfGetPreds) {
  const auto detections = std::make_shared<SeenOutputs>(true);
  const auto outputs = std::make_shared<SeenOutputs>(false);
  Learner learn = learner(
      {.learner = {
           .metrics = {
               Metric(detections),
               Metric(outputs),
               mean_average_precision({.iou = 0.01})}}});
  learn.data().outputs[0].detection = {
      .score_thresh = 0,
      .detections_per_img = 2};
  const double map = learn.validate()["map_1"];
  const Predictions all = learn.get_preds(Split::valid);
  ASSERT_EQ(detections->seen->size(), 1u);
  EXPECT_EQ(all.outputs[0].sizes().vec(), (std::vector<int64_t>{3, 2, 4}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::equal(detections->seen->at(0)[i], all.outputs[i])) << i;
  }
  EXPECT_EQ(outputs->seen->at(0).size(), 4u);
  Metric by_hand = mean_average_precision({.iou = 0.01});
  by_hand.update(all.outputs, all.all_targets);
  EXPECT_EQ(map, by_hand.compute().item<double>());
  // The default of 300 detections finds more of the objects.
  learn.data().outputs[0].detection = {.score_thresh = 0};
  EXPECT_NE(learn.validate()["map_1"], map);

  // Also while training: two steps, then validation.
  detections->seen->clear();
  learn.data().outputs[0].detection.detections_per_img = 5;
  learn.add<TrainMetrics>();
  learn.fit(1, 1e-6);
  ASSERT_EQ(detections->seen->size(), 2 + 1u);
  EXPECT_EQ(
      detections->seen->at(0)[1].sizes().vec(),
      (std::vector<int64_t>{4, 5}));
}

TEST_F(DetectionLearnerTest, ReturnsTheLossOfEachImage) {
  Learner learn = learner();
  const DataLoader& valid = *learn.data().valid;
  const Predictions all = learn.get_preds(valid, /*with_losses=*/true);
  ASSERT_EQ(all.losses.sizes().vec(), (std::vector<int64_t>{3}));
  EXPECT_NEAR(all.losses.mean().item<double>(), learn.validate().loss, 1e-5);
  EXPECT_NE(all.losses[0].item<float>(), all.losses[1].item<float>());
}

TEST_F(DetectionLearnerTest, RejectsMixupOfBoxes) {
  Learner learn = learner();
  learn.add<CutMix>();
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"[CutMix] the targets are boxes or points", "Omit CutMix"});
  // Custom data may lack a description of the targets, but the loss has one.
  Learner other = learner();
  other.data().outputs.clear();
  other.add<MixUp>();
  expect_error<c10::ValueError>(
      [&] { other.fit(1); },
      {"[MixUp] the targets are boxes or points"});
}

// Exports the raw outputs, like every Learner, or the detections of get_preds;
// the tests of models/detection compare the values.
TEST_F(DetectionLearnerTest, ExportsItsDetectionsToOnnx) {
  Learner learn = learner();
  const Tensors x = {torch::rand({1, 3, 64, 64})};
  const auto has_labels = [&](const OnnxOptions& options) {
    learn.export_onnx(squares_ / "net.onnx", x, options);
    const std::vector<uint8_t> bytes = read_file(squares_ / "net.onnx");
    const std::string_view text(
        reinterpret_cast<const char*>(bytes.data()),  // NOLINT
        bytes.size());
    return text.find("labels") != text.npos;
  };
  EXPECT_FALSE(has_labels({}));
  EXPECT_TRUE(has_labels(
      {.preprocessing = learn.data().preprocessing,
       .detection = learn.data().outputs[0].detection,
       .nms = true}));
}

TEST_F(DetectionLearnerTest, PredictsBoxesScoresAndLabels) {
  Learner learn = learner();
  const Predictions predictions = learn.get_preds(Split::valid);
  ASSERT_EQ(predictions.outputs.size(), 3u);
  EXPECT_EQ(
      predictions.outputs[0].sizes().vec(),
      (std::vector<int64_t>{3, 300, 4}));
  EXPECT_EQ(
      predictions.outputs[1].sizes().vec(),
      (std::vector<int64_t>{3, 300}));
  EXPECT_EQ(predictions.outputs[2].scalar_type(), torch::kLong);
  ASSERT_EQ(predictions.all_targets.size(), 5u);

  // At most as many as the options allow, above their score threshold.
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

TEST_F(DetectionLearnerTest, PredictorReturnsBoxesInPixelsOfThePhoto) {
  Learner learn = learner();
  learn.data().outputs[0].detection = {
      .score_thresh = 0,
      .detections_per_img = 5};
  learn.data().outputs[0].threshold = 0;
  learn.export_model(squares_ / "squares.safetensors");
  expect_error<c10::ValueError>(
      [&] {
        learn.export_model(
            squares_ / "refused.safetensors",
            {.python_loader = true});
      },
      {"boxes or points", "Omit python_loader"});
  for (const bool exact : {true, false}) {
    const Predictor predictor = Predictor::load(
        squares_ / "squares.safetensors",
        {.device = torch::kCPU, .exact = exact});
    const std::string& path = squares_.image(0);
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
    // The photo's width of 96 became 64, and its height of 64 became 43, below
    // 10 rows of padding.
    torch::Tensor expected = on_input.boxes.clone();
    expected = (expected + torch::tensor({0.f, -11.f, 0.f, -11.f})) *
               torch::tensor({1.5f, 64 / 43.f, 1.5f, 64 / 43.f});
    expected.select(1, 1).clamp_(0, 64);
    expected.select(1, 3).clamp_(0, 64);
    EXPECT_TRUE(torch::allclose(on_photo.boxes, expected, 0, 0.05))
        << on_photo.boxes << expected;
  }
}

TEST_F(DetectionLearnerTest, ExportsAllOptionsOfItsDetections) {
  Learner learn = learner();
  learn.data().outputs[0].detection = {
      .score_thresh = 0.25,
      .topk_candidates = 90,
      .nms_thresh = 0.75,
      .detections_per_img = 7,
      .anchors_per_level = {576, 144, 36, 9, 9},
      .levels = 4};
  learn.export_model(squares_ / "squares.safetensors");
  const Predictor predictor = Predictor::load(
      squares_ / "squares.safetensors",
      {.device = torch::kCPU, .exact = true});
  const DetectionOptions& read = predictor.card().outputs.at(0).detection;
  EXPECT_EQ(read.score_thresh, 0.25);
  EXPECT_EQ(read.topk_candidates, 90);
  EXPECT_EQ(read.nms_thresh, 0.75);
  EXPECT_EQ(read.detections_per_img, 7);
  EXPECT_EQ(read.anchors_per_level, (std::vector<int64_t>{576, 144, 36, 9, 9}));
  EXPECT_EQ(read.levels, 4);
}

TEST_F(DetectionLearnerTest, PredictionsCanBeWrittenForCoco) {
  Learner learn = learner();
  learn.data().outputs[0].detection = {
      .score_thresh = 0,
      .detections_per_img = 6};
  // Keeps detections of all scores.
  learn.data().outputs[0].threshold = 0.99;
  const std::vector<std::string> paths = {squares_.image(3), squares_.image(0)};
  const std::vector<ImageDetections> found = get_detections(learn, paths);
  ASSERT_EQ(found.size(), 2u);
  learn.data().outputs[0].threshold = 0;
  for (size_t i = 0; i < 2; ++i) {
    const Prediction one = learn.predict(std::filesystem::path(paths[i]));
    const auto count = one.boxes.size(0);
    ASSERT_GT(count, 0);
    // Also of those that were dropped because they lie in the padding.
    EXPECT_TRUE(torch::allclose(one.probabilities, found[i].scores, 0, 1e-3));
    EXPECT_TRUE(
        torch::allclose(found[i].boxes.slice(0, 0, count), one.boxes, 0, 0.05));
    EXPECT_TRUE((found[i].labels.slice(0, count) == -1).all().item<bool>());
    EXPECT_EQ(found[i].labels[0].item<int64_t>(), one.indices[0]);
  }
  Learner other(
      squares_.data(),
      torch::nn::Sequential(
          torch::nn::AdaptiveAvgPool2d(1),
          torch::nn::Flatten(),
          torch::nn::Linear(3, 2)),
      quiet({.loss = torch::nn::MSELoss()}));
  expect_error<c10::ValueError>(
      [&] { get_detections(other, paths); },
      {"[get_detections]", "boxes [D, 4]"});
}

// A reflected object would have no box.
TEST_F(DetectionLearnerTest, ImagesArePaddedWithZerosByDefault) {
  const DataBlock categories{
      .items = squares_.items(),
      .label = label_from_func(
          [](const ImageItem&) { return std::string("square"); })};
  const auto top_row = [&](const DataBlock& block,
                           std::optional<Padding> padding) {
    const DataBunch data = block.bunch(
        {.size = 64,
         .resize = ResizeMethod::pad,
         .padding = padding,
         .workers = 0,
         .device = torch::kCPU});
    return data.valid->dataset().get_batch({0}, {}).inputs[0][0][0];
  };
  const auto is_black = [](const torch::Tensor& row) {
    return (row == 0).all().item<bool>();
  };
  EXPECT_TRUE(is_black(top_row(squares_.block(), {})));
  EXPECT_FALSE(is_black(top_row(squares_.block(), Padding::reflection)));
  EXPECT_FALSE(is_black(top_row(categories, {})));
  EXPECT_EQ(padding_for(TargetKind::points, {}), Padding::zeros);
  EXPECT_EQ(padding_for(TargetKind::mask, {}), Padding::reflection);

  // And on the device.
  const auto turned = [&](TargetKind kind, std::optional<Padding> padding) {
    DataBunch data = squares_.data();
    Batch batch = data.train->dataset().get_batch({0, 1}, {});
    if (kind != TargetKind::boxes) batch.targets.clear();
    augment_batch({rotate({45, 45}, 1)}, padding, {}, kind)(
        batch,
        {.training = true, .seed = 1});
    return batch.inputs[0];
  };
  EXPECT_TRUE(torch::equal(
      turned(TargetKind::boxes, {}),
      turned(TargetKind::boxes, Padding::zeros)));
  EXPECT_TRUE(torch::equal(
      turned(TargetKind::category, {}),
      turned(TargetKind::category, Padding::reflection)));
  EXPECT_FALSE(torch::equal(
      turned(TargetKind::category, {}),
      turned(TargetKind::boxes, {})));
}

TEST_F(DetectionLearnerTest, HasThreeLayerGroupsAndFreezesTwoIfPretrained) {
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
  save_safetensors(squares_ / "body.safetensors", weights);
  Learner frozen = learner(
      {.pretrained = DetectorWeights::imagenet,
       .file = squares_ / "body.safetensors"});
  EXPECT_EQ(first_trained(frozen), "backbone.fpn.inner_blocks.0.0.weight");
  EXPECT_TRUE(torch::equal(
      frozen.state_dict()["backbone.body.conv1.weight"],
      weights["conv1.weight"]));

  // Data that does not normalize is normalized for the pretrained weights.
  DataBunch data = squares_.data();
  data.batch_transforms.clear();
  const auto transforms = [&](const DetectionLearnerOptions& options) {
    DetectionLearnerOptions quiet_options = options;
    quiet_options.learner = quiet();
    return detection_learner(data, "retinanet_resnet18_fpn", quiet_options)
        .data()
        .batch_transforms.size();
  };
  EXPECT_EQ(transforms({}), 0u);
  EXPECT_EQ(
      transforms(
          {.pretrained = DetectorWeights::imagenet,
           .file = squares_ / "body.safetensors"}),
      1u);
}

TEST_F(DetectionLearnerTest, PlotsDrawBoxesInTheColorsOfTheirClasses) {
  Learner learn = learner();
  learn.data().outputs[0].detection.score_thresh = 0;
  learn.data().outputs[0].detection.detections_per_img = 3;
  learn.data().outputs[0].threshold = 0;
  const auto shows = [&](const char* file, int64_t index) {
    return has_color(
        read_image((squares_ / file).string()),
        class_color(index));
  };
  show_batch(learn.data(), squares_ / "batch.png", Split::train, {.count = 4});
  EXPECT_TRUE(shows("batch.png", 0));
  EXPECT_TRUE(shows("batch.png", 1));
  EXPECT_FALSE(shows("batch.png", 2));
  show_results(learn, squares_ / "results.png", Split::valid, {.count = 2});
  EXPECT_TRUE(shows("results.png", 0) || shows("results.png", 1));
}

TEST_F(DetectionLearnerTest, RejectsUnusableDataAndArchitectures) {
  const Shades shades;
  expect_error<c10::ValueError>(
      [&] { detection_learner(shades.data(), "retinanet_resnet18_fpn"); },
      {"[detection_learner] the data has no boxes", "labeller"});
  expect_error<c10::ValueError>(
      [&] { detection_learner(squares_.data(), "yolo"); },
      {"yolo", "retinanet_resnet18_fpn"});
  DataBunch unnamed = squares_.data();
  unnamed.classes.clear();
  expect_error<c10::ValueError>(
      [&] { detection_learner(unnamed, "retinanet_resnet18_fpn"); },
      {"classes is 0", ".classes"});
  // A custom Learner without a loss shows which loss is needed.
  Learner learn(
      squares_.data(),
      detection_model("retinanet_resnet18_fpn", 2),
      quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"no loss was given", "retinanet_loss()"});
}

}  // namespace
}  // namespace tern::detection_learner_test
