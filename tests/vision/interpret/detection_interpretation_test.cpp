#include "tern/vision/interpret/detection_interpretation.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/interpret/grad_cam.h"
#include "tern/vision/interpret/multi_label_interpretation.h"
#include "tern/vision/interpret/show.h"

namespace tern::detection_interpretation_test {
namespace {

using namespace testing_support;  // NOLINT

/// Returns stored detections for each image, whose number is its first pixel.
struct Written final : torch::nn::Module {
  explicit Written(Tensors outputs) : outputs(std::move(outputs)) {
    register_module("linear", torch::nn::Linear(1, 1));
  }
  Tensors forward(const torch::Tensor& images) {
    const torch::Tensor numbers =
        (images.select(3, 0).select(2, 0).select(1, 0) * 100)
            .round()
            .to(torch::kLong);
    Tensors of_images;
    for (const torch::Tensor& output : outputs) {
      of_images.push_back(output.index_select(0, numbers));
    }
    return of_images;
  }
  Tensors outputs;
};

struct Object {
  float x1, y1, x2, y2;
  int64_t label;
  float score = 0;
};
using ObjectLists = std::vector<std::vector<Object>>;

/// Returns padded boxes, labels and scores.
Tensors tensors_of(const ObjectLists& images) {
  size_t most = 1;
  for (const auto& objects : images) most = std::max(most, objects.size());
  const int64_t count = std::ssize(images);
  const int64_t width = static_cast<int64_t>(most);
  Tensors result = {
      torch::zeros({count, width, 4}),
      torch::full({count, width}, -1, torch::kLong),
      torch::zeros({count, width})};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < std::ssize(images[i]); ++k) {
      const Object& object = images[i][k];
      result[0][i][k] =
          torch::tensor({object.x1, object.y1, object.x2, object.y2});
      result[1][i][k] = object.label;
      result[2][i][k] = object.score;
    }
  }
  return result;
}

DataBunch data_of(Tensors targets, int64_t count, TargetKind kind) {
  torch::Tensor images = torch::full({count, 3, 32, 32}, 0.7);
  for (int64_t i = 0; i < count; ++i) images[i][0][0][0] = i / 100.0;
  const auto dataset =
      std::make_shared<TensorDataset>(Tensors{images}, std::move(targets));
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 3, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"cat", "dog", "bird"};
  data.outputs = {{.kind = kind, .activation = Activation::none}};
  return data;
}

Learner learner_of(
    const ObjectLists& detections,
    const ObjectLists& objects,
    const ObjectLists& crowds) {
  const Tensors found = tensors_of(detections), actual = tensors_of(objects),
                regions = tensors_of(crowds);
  return Learner(
      data_of(
          {actual[0], actual[1], actual[2], regions[0], regions[1]},
          std::ssize(objects),
          TargetKind::boxes),
      std::make_shared<Written>(Tensors{found[0], found[2], found[1]}),
      quiet({.loss = Loss([](const Tensors& outputs, const Tensors&) {
               return outputs[0].sum();
             })}));
}

/// Four images: one without objects, and one without objects and detections.
Learner small_learner() {
  return learner_of(
      {{{0, 0, 10, 9, 0, 0.9F},     // found
        {20, 0, 30, 10, 0, 0.8F},   // a dog detected as a cat
        {0, 0, 10, 10, 0, 0.7F},    // the same cat again
        {0, 20, 10, 30, 2, 0.4F}},  // below the threshold
       {{5, 5, 15, 15, 1, 0.6F}, {5, 5, 15, 15, 2, 0.3F}},
       {{12, 12, 20, 20, 1, 0.9F},   // in the crowd of dogs
        {12, 12, 20, 20, 0, 0.85F},  // not a dog
        {5, 5, 15, 15, 1, 0.7F},     // a quarter of it is in the crowd
        {0, 0, 10, 10, 0, 0.6F}},    // found
       {}},
      {{{0, 0, 10, 10, 0}, {20, 0, 30, 10, 1}, {0, 20, 10, 30, 2}},
       {},
       {{0, 0, 10, 10, 0}},
       {}},
      {{}, {}, {{10, 10, 30, 30, 1}}, {}});
}

void expect_counts(
    const DetectionCounts& counts,
    const std::vector<int64_t>& expected) {
  EXPECT_EQ(
      (std::vector<int64_t>{
          counts.objects,
          counts.found,
          counts.missed,
          counts.confused,
          counts.false_positives}),
      expected);
}

TEST(DetectionInterpretation, CountsFoundMissedConfusedAndFalseDetections) {
  Learner learn = small_learner();
  const auto interp = DetectionInterpretation::from(learn);
  EXPECT_EQ(interp.size(), 4);
  ASSERT_EQ(interp.counts().size(), 3u);
  // objects, found, missed, confused, false
  expect_counts(interp.counts()[0], {2, 2, 0, 0, 2});
  expect_counts(interp.counts()[1], {1, 0, 0, 1, 2});
  expect_counts(interp.counts()[2], {1, 0, 1, 0, 0});
  expect_counts(interp.total(), {4, 2, 1, 1, 4});
  EXPECT_EQ(interp.total().errors(), 6);
  EXPECT_TRUE(interp.confusion_matrix().equal(torch::tensor(
      {{2, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 1}, {2, 2, 0, 0}},
      torch::kLong)))
      << interp.confusion_matrix();
  const auto pairs = interp.most_confused();
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].actual, "dog");
  EXPECT_EQ(pairs[0].predicted, "cat");
  EXPECT_EQ(pairs[0].count, 1);
  EXPECT_TRUE(interp.most_confused(2).empty());
  EXPECT_EQ(
      interp.to_string(),
      "class  objects    found   missed confused    false\n"
      "cat          2        2        0        0        2\n"
      "dog          1        0        0        1        2\n"
      "bird         1        0        1        0        0\n"
      "all          4        2        1        1        4\n");
}

TEST(DetectionInterpretation, SortsImagesByTheirErrors) {
  Learner learn = small_learner();
  const auto interp = DetectionInterpretation::from(learn);
  const auto worst = interp.worst_images();
  ASSERT_EQ(worst.size(), 3u);  // image 3 has no error
  EXPECT_EQ(worst[0].index, 0);
  expect_counts(worst[0].counts, {3, 1, 1, 1, 1});
  EXPECT_EQ(worst[1].index, 2);
  expect_counts(worst[1].counts, {1, 1, 0, 0, 2});
  EXPECT_EQ(worst[2].index, 1);
  expect_counts(worst[2].counts, {0, 0, 0, 0, 1});
  EXPECT_EQ(interp.worst_images(1).size(), 1u);
  expect_error<c10::ValueError>(
      [&] { interp.worst_images(-1); },
      {"k is -1", "expected 0 for all"});
}

TEST(DetectionInterpretation, EvaluatesDetectionsOfAllScores) {
  Learner learn = small_learner();
  const BoxEvaluationResult result =
      DetectionInterpretation::from(learn).evaluation();
  EXPECT_EQ(result.images, 4);
  EXPECT_EQ(result.classes, learn.data().classes);
  EXPECT_EQ(result.objects_per_class, (std::vector<int64_t>{2, 1, 1}));
  // The first and the last of five cats are right: precision 1 up to a recall
  // of 0.5, then 2 / 5. The only correct detection of a bird has the score 0.4;
  // a wrong one has 0.3.
  EXPECT_NEAR(result.map_50_per_class[0], (51 + 50 * 0.4) / 101, 1e-12);
  EXPECT_EQ(result.map_50_per_class[1], 0);
  EXPECT_EQ(result.map_50_per_class[2], 1);
}

TEST(DetectionInterpretation, RespectsTheScoreAndIouThresholds) {
  Learner learn = small_learner();
  // A threshold below 0.4 finds the bird.
  const auto lower =
      DetectionInterpretation::from(learn, Split::valid, {.score = 0.35});
  expect_counts(lower.counts()[2], {1, 1, 0, 0, 0});
  const auto all =
      DetectionInterpretation::from(learn, Split::valid, {.score = 0});
  expect_counts(all.counts()[2], {1, 1, 0, 0, 1});
  // With an IoU of 0.95 only the second, exact box matches the cat.
  const auto exact =
      DetectionInterpretation::from(learn, Split::valid, {.iou = 0.95});
  expect_counts(exact.counts()[0], {2, 2, 0, 0, 2});
  // With an IoU of 0.25, a quarter of a box in the crowd is enough.
  const auto rough =
      DetectionInterpretation::from(learn, Split::valid, {.iou = 0.25});
  expect_counts(rough.counts()[1], {1, 0, 0, 1, 1});
}

TEST(DetectionInterpretation, PrefersObjectsOfTheSameClass) {
  Learner learn = learner_of(
      {{{0, 0, 10, 10, 1, 0.6F}, {0, 0, 10, 10, 0, 0.9F}}},
      {{{0, 0, 10, 10, 0}, {0, 0, 10, 9, 1}}},
      {{}});
  const auto interp = DetectionInterpretation::from(learn);
  expect_counts(interp.total(), {2, 2, 0, 0, 0});
  EXPECT_TRUE(interp.worst_images().empty());
  expect_error<c10::ValueError>(
      [&] { interp.draw_worst(); },
      {"none of 1 images", "use show_results"});
}

TEST(DetectionInterpretation, BoxesWithoutAreaMatchNothing) {
  Learner learn = learner_of(
      {{{5, 5, 5, 9, 0, 0.9F}}},
      {{{5, 5, 5, 9, 0}}},
      {{{0, 0, 9, 9, 1}}});
  expect_counts(DetectionInterpretation::from(learn).total(), {1, 0, 1, 0, 1});
}

TEST(DetectionInterpretation, PlotsShowEachKindOfBoxInItsColor) {
  const TempFolder temp;
  Learner learn = small_learner();
  const auto interp = DetectionInterpretation::from(learn);
  interp.plot_worst(temp / "worst.png");
  const torch::Tensor picture = read_image((temp / "worst.png").string());
  EXPECT_TRUE(picture.equal(interp.draw_worst()));
  EXPECT_TRUE(has_color(picture, {0, 136, 86}));     // found
  EXPECT_TRUE(has_color(picture, {200, 20, 40}));    // missed
  EXPECT_TRUE(has_color(picture, {243, 132, 0}));    // false
  EXPECT_TRUE(has_color(picture, {135, 60, 170}));   // confused
  EXPECT_TRUE(has_color(picture, {110, 110, 110}));  // a crowd
  interp.plot_confusion_matrix(temp / "matrix.png");
  interp.plot_confusion_matrix(temp / "matrix.svg", /*normalize=*/true);
  const auto svg = read_file(temp / "matrix.svg");
  const std::string text(svg.begin(), svg.end());
  EXPECT_NE(text.find("background"), std::string::npos);
  expect_error<c10::ValueError>(
      [&] { interp.plot_confusion_matrix(temp / "matrix.jpg"); },
      {"DetectionInterpretation::plot_confusion_matrix"});
}

TEST(DetectionInterpretation, RejectsNonDetectionOutputsAndInvalidOptions) {
  const auto from = [](Learner learn,
                       const DetectionInterpretationOptions& options = {}) {
    DetectionInterpretation::from(learn, Split::valid, options);
  };
  const auto with_outputs = [](Tensors outputs) {
    return Learner(
        data_of(
            {torch::zeros({1, 1, 4}), torch::zeros({1, 1}, torch::kLong)},
            1,
            TargetKind::boxes),
        std::make_shared<Written>(std::move(outputs)),
        quiet({.loss = Loss([](const Tensors& all, const Tensors&) {
                 return all[0].sum();
               })}));
  };
  expect_error<c10::ValueError>(
      [&] {
        from(with_outputs({torch::zeros({1, 9, 3})}));
      },
      {"[1, 9, 3] Float",
       "expected detections, boxes [N, D, 4] Float",
       "Activation::detections"});
  const torch::Tensor boxes = torch::ones({1, 1, 4});
  const torch::Tensor none = torch::zeros({1, 1}, torch::kLong);
  expect_error<c10::ValueError>(
      [&] {
        from(with_outputs({boxes, torch::full({1, 1}, std::nan("")), none}));
      },
      {"a score is NaN", "TerminateOnNaN"});
  expect_error<c10::ValueError>(
      [&] {
        from(with_outputs({boxes, torch::ones({1, 1}), none + 3}));
      },
      {"a label is 3", "there are 3 classes"});
  expect_error<c10::ValueError>(
      [&] { from(small_learner(), {.iou = 0}); },
      {"iou is 0", "0 < iou <= 1"});
  Learner classifier(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { DetectionInterpretation::from(classifier); },
      {"the data has no boxes", "ClassificationInterpretation"});
}

TEST(
    DetectionInterpretation,
    OtherInterpretationsRejectBoxesAndPointsAndNameTheRightOne) {
  const TempFolder temp;
  const torch::Tensor image = torch::zeros({3, 32, 32});
  Learner boxes = small_learner();
  Learner points(
      data_of(
          {torch::zeros({4, 2, 2}), torch::ones({4, 2}, torch::kBool)},
          4,
          TargetKind::points),
      std::make_shared<Written>(Tensors{torch::zeros({4, 2, 2})}),
      quiet({.loss = Loss([](const Tensors& all, const Tensors&) {
               return all[0].sum();
             })}));
  for (const auto& [learn, targets, instead] :
       {std::tuple{&boxes, "boxes", "DetectionInterpretation"},
        {&points, "points", "show_results"}}) {
    const auto refuses = [&, t = targets, i = instead](const auto& action) {
      expect_error<c10::ValueError>(action, {"the targets are ", t, i});
    };
    Learner& l = *learn;
    refuses([&] { Interpretation::from(l); });
    refuses([&] { ClassificationInterpretation::from(l); });
    refuses([&] { MultiLabelInterpretation::from(l); });
    refuses([&] { segmentation_report(l); });
    refuses([&] { grad_cam(l, image); });
    refuses([&] { plot_grad_cam(l, "photo.png", temp / "cam.png"); });
  }
}

}  // namespace
}  // namespace tern::detection_interpretation_test
