// The part of an exported detector after the network; check_onnx.py compares
// its results in ONNX Runtime.
#include "tern/tests/vision/models/detection/onnx_detections.h"

#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/detections.h"
#include "tern/tests/vision/models/detection/fixture.h"

namespace tern::onnx_detections_test {
namespace {

using testing_support::OnnxDetections;
using testing_support::retinanet_anchors;
using testing_support::some;
using torch::Tensor;
namespace fs = std::filesystem;

constexpr int64_t kClasses = 3, kSide = 64;

// A model without a network: the logits [N, A, C] and codes [N, A, 4] are its
// inputs.
struct GivenOutputsImpl : torch::nn::Module {
  explicit GivenOutputsImpl(int64_t side)
      : anchors(register_buffer("anchors", retinanet_anchors(side, side))),
        sizes(register_buffer(
            "sizes",
            torch::full({1, 2}, static_cast<float>(side)))) {}

  Tensors forward(const Tensor& logits, const Tensor& codes) {
    const int64_t images = logits.size(0);
    return {
        logits,
        codes,
        anchors.expand({images, -1, -1}),
        sizes.expand({images, -1})};
  }

  Tensor anchors, sizes;
};
TORCH_MODULE(GivenOutputs);

Tensors given_outputs() {
  const int64_t anchors = retinanet_anchors(kSide, kSide).size(0);
  return {
      3 * some({3, anchors, kClasses}, 1).to(torch::kFloat),
      some({3, anchors, 4}, 2).to(torch::kFloat)};
}

class OnnxDetectionsTest : public OnnxDetections {};

TEST_F(OnnxDetectionsTest, RespectsEachThresholdAndLimit) {
  const auto with = [&](const auto& change) {
    DetectionOptions options = usual_;
    options.detections_per_img = 200;
    change(options);
    return options;
  };
  const std::pair<std::string, DetectionOptions> all[] = {
      {"usual", with([](auto&) {})},
      {"score_0", with([](auto& o) { o.score_thresh = 0; })},
      {"score_1", with([](auto& o) { o.score_thresh = 1; })},
      {"score_near_1", with([](auto& o) { o.score_thresh = 0.94; })},
      {"nms_0", with([](auto& o) { o.nms_thresh = 0; })},
      {"nms_1", with([](auto& o) { o.nms_thresh = 1; })},
      {"topk_3", with([](auto& o) { o.topk_candidates = 3; })},
      {"all_candidates", with([](auto& o) { o.topk_candidates = 100'000; })},
      {"one", with([](auto& o) { o.detections_per_img = 1; })}};
  const Tensors inputs = given_outputs();
  const GivenOutputs model(kSide);
  Tensors found;
  for (const auto& [name, options] : all) {
    write(
        "of_" + name,
        Model(model),
        inputs,
        {.detection = options, .nms = true});
    const Tensors y = GivenOutputs(model)->forward(inputs[0], inputs[1]);
    // Each option changes the result.
    const Tensor scores = decode_detections(y, options)[1];
    for (const Tensor& other : found) EXPECT_FALSE(scores.equal(other)) << name;
    found.push_back(scores);
  }
}

// Equal, NaN and infinite logits, and boxes far outside the image.
TEST_F(OnnxDetectionsTest, HandlesNaNInfiniteAndEqualLogits) {
  auto [logits, codes] = std::pair(given_outputs()[0], given_outputs()[1]);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  logits[1][5][1] = std::numeric_limits<float>::quiet_NaN();
  logits[2].slice(0, 0, 500) = std::numeric_limits<float>::quiet_NaN();
  logits[0][30][0] = kInfinity;
  logits[0][31][0] = -kInfinity;
  codes.slice(1, 0, 60) *= 50;
  const GivenOutputs model(kSide);
  write(
      "nms_of_all_numbers",
      Model(model),
      {logits, codes},
      {.detection = usual_, .nms = true});

  // Tern's choice of candidates among equal logits is arbitrary and may differ
  // from the file's; the check at export must tolerate this.
  logits.fill_(2);
  EXPECT_NO_THROW(export_onnx(
      Model(model),
      temp_ / "equal.onnx",
      {logits, codes},
      {.detection = usual_, .nms = true}));
}

TEST_F(OnnxDetectionsTest, UsesTheGivenLevels) {
  const Model model = GivenOutputs(kSide);
  const Tensors inputs = given_outputs();
  DetectionOptions given = usual_;
  given.anchors_per_level = {576, 144, 36, 9, 8};
  refuses(
      model,
      inputs,
      {.detection = given, .nms = true},
      {"[export_onnx] anchors_per_level is {576, 144, 36, 9, 8}",
       "774 anchors"});
  given.anchors_per_level = {100, 620, 0, 54};
  write("of_given_levels", model, inputs, {.detection = given, .nms = true});
  refuses(
      model,
      inputs,
      {.dynamic_size = true, .detection = given},
      {"anchors_per_level is {100, 620, 0, 54} and dynamic_size is true",
       ".dynamic_size = false"});
}

TEST_F(OnnxDetectionsTest, NamesItsOutputs) {
  const Model model = GivenOutputs(kSide);
  const Tensors inputs = given_outputs();
  const auto has = [&](const std::string& name, const OnnxOptions& options) {
    const fs::path file = temp_ / "named.onnx";
    export_onnx(model, file, inputs, options);
    const std::vector<uint8_t> bytes = read_file(file);
    return std::string(bytes.begin(), bytes.end()).find(name) !=
           std::string::npos;
  };
  EXPECT_TRUE(has("scores", {.detection = usual_}));
  EXPECT_FALSE(has("labels", {.detection = usual_}));
  EXPECT_TRUE(has("labels", {.detection = usual_, .nms = true}));
  EXPECT_TRUE(
      has("det_classes",
          {.output_names = {"det_boxes", "det_scores", "det_classes"},
           .detection = usual_,
           .nms = true}));
  refuses(
      model,
      inputs,
      {.output_names = {"boxes", "scores"}, .detection = usual_, .nms = true},
      {"2 output_names; expected 3"});
}

TEST_F(OnnxDetectionsTest, RejectsWhatItCannotDecode) {
  const Model model = GivenOutputs(kSide);
  const Tensors inputs = given_outputs();
  refuses(
      model,
      inputs,
      {.nms = true},
      {"[export_onnx] nms is true, but detection is not set", ".detection"});
  refuses(
      model,
      inputs,
      {.detection = DetectionOptions{.nms_thresh = 1.5}},
      {"[export_onnx]", "nms_thresh 1.5", "thresholds from 0 to 1"});
  refuses(
      model,
      inputs,
      {.detection = DetectionOptions{.levels = 4}, .nms = true},
      {"[export_onnx]", "for each of 4 levels", ".levels"});
  refuses(
      torch::nn::Linear(4, 2),
      {torch::rand({2, 4})},
      {.detection = usual_, .nms = true},
      {"[export_onnx] outputs are", "expected the outputs of a RetinaNet"});
}

}  // namespace
}  // namespace tern::onnx_detections_test
