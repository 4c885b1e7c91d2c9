#include "tern/vision/interpret/interpretation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/loss.h>

#include "tern/learner/metrics/metrics.h"
#include "tern/learner/metrics/ranking.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/show.h"

namespace tern::interpretation_test {
namespace {

using namespace testing_support;  // NOLINT

std::string name_of(const Interpretation& interp, const TopLoss& top) {
  return std::filesystem::path(interp.dataset().describe(top.index))
      .filename()
      .string();
}

/// A model with three outputs and one-hot predictions: class `pred[i]` for
/// sample i.
Learner learner_with(
    const std::vector<int64_t>& targets,
    const std::vector<int64_t>& preds,
    std::vector<std::string> classes = {"a", "b", "<c>"},
    int64_t ignore_index = 3) {
  const torch::Tensor inputs =
      torch::one_hot(torch::tensor(preds), 3).to(torch::kFloat) * 5;
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{inputs},
      Tensors{torch::tensor(targets)});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 4096, .workers = 0});
  data.device = torch::kCPU;
  data.classes = std::move(classes);
  torch::nn::Sequential net(torch::nn::Linear(3, 3));
  const torch::NoGradGuard no_grad;
  net->parameters()[0].copy_(torch::eye(3));
  net->parameters()[1].zero_();
  const torch::nn::CrossEntropyLoss loss(
      torch::nn::CrossEntropyLossOptions().ignore_index(ignore_index));
  return Learner(
      data,
      net,
      quiet(
          {.loss = loss,
           .metrics =
               {accuracy(), dice(), jaccard(), f1(), average_precision()}}));
}

std::string text_of(const std::filesystem::path& file) {
  const std::vector<uint8_t> bytes = read_file(file);
  return {bytes.begin(), bytes.end()};
}

// An unreadable image is omitted, and no other image replaces it.
TEST(Interpretation, NamesTheRightFilesWhenSomeCannotBeRead) {
  const Shades shades;
  for (const char* const name : {"valid/dark/10.png", "valid/light/200.png"}) {
    write_file(shades / name, std::string("no image"));
  }
  Learner learn(
      shades.data(
          {.size = 20,
           .bad_images = BadImagePolicy::skip(0.5),
           .sink = silent()}),
      Shades::net(),
      quiet({.metrics = {accuracy()}}));
  // The images are dark 40 and 250, and light 120 and 240; two predictions are
  // right.
  EXPECT_EQ(learn.validate()["accuracy"], 0.5);
  const Predictions predictions = learn.get_preds();
  EXPECT_EQ(predictions.indices, (std::vector<int64_t>{1, 2, 3, 5}));
  EXPECT_TRUE(torch::equal(predictions.targets, torch::tensor({0, 0, 1, 1})));
  const auto interp = ClassificationInterpretation::from(learn);
  const std::vector<TopLoss> top = interp.top_losses();
  ASSERT_EQ(top.size(), 4U);
  EXPECT_EQ(
      interp.dataset().describe(top[0].index),
      (shades / "valid/dark/250.png").string());
  EXPECT_EQ(top[0].index, 1);  // sorted after 10.png
  for (int64_t row = 0; row < interp.size(); ++row) {
    const int64_t index = interp.indices()[row];
    const std::filesystem::path file = interp.dataset().describe(index);
    EXPECT_TRUE(torch::allclose(
        learn.predict(file).probabilities,
        interp.preds()[row]));
    const auto one = std::ranges::find(top, index, &TopLoss::index);
    EXPECT_EQ(interp.losses()[row].item<double>(), one->loss);
  }
  show_results(learn, shades / "results.png");
  show_batch(learn.data(), shades / "batch.png", Split::valid);
  EXPECT_EQ(interp.draw_top_losses().dim(), 3);
  // Training replaces bad images, but TTA omits them too.
  const Predictions averaged = learn.tta();
  EXPECT_EQ(averaged.indices, predictions.indices);
  EXPECT_TRUE(torch::allclose(averaged.preds, predictions.preds));
}

TEST(Interpretation, RejectsNaNPredictions) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  {
    const torch::NoGradGuard no_grad;
    learn.model().parameters()[0].tensor.fill_(std::nan(""));
  }
  expect_error<c10::ValueError>(
      [&] { ClassificationInterpretation::from(learn); },
      {"an output is NaN", "TerminateOnNaN"});
  expect_error<c10::ValueError>(
      [&] { segmentation_report(learn); },
      {"an output is NaN", "TerminateOnNaN"});
}

TEST(Interpretation, FindsTheHighestLosses) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const Interpretation interp = Interpretation::from(learn);
  EXPECT_EQ(interp.size(), 6);
  const std::vector<TopLoss> top = interp.top_losses(2);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(name_of(interp, top[0]), "250.png");
  EXPECT_EQ(name_of(interp, top[1]), "120.png");
  // The two logits differ by 6 (mean - 1/2).
  const double difference = 6 * (250. / 255 - 0.5);
  EXPECT_NEAR(top[0].loss, std::log1p(std::exp(difference)), 1e-4);
}

TEST(Interpretation, FindsTheLowestLosses) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const Interpretation interp = Interpretation::from(learn);
  const std::vector<TopLoss> top = interp.top_losses(0, /*largest=*/false);
  EXPECT_EQ(top.size(), 6u);
  EXPECT_EQ(name_of(interp, top.front()), "10.png");
  EXPECT_EQ(name_of(interp, top.back()), "250.png");
}

TEST(Interpretation, CoversAllTrainingDataInOrder) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const Interpretation interp = Interpretation::from(learn, Split::train);
  EXPECT_TRUE(
      torch::equal(interp.targets(), torch::tensor({0, 0, 0, 1, 1, 1})));
}

TEST(Interpretation, DrawsTopLossesWithRightOrWrongMarks) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const Interpretation interp = Interpretation::from(learn);
  const auto draw = [&](bool largest) {
    interp.plot_top_losses(shades / "top.png", 2, largest);
    return read_image((shades / "top.png").string());
  };
  EXPECT_TRUE(has_color(draw(true), kWrongColor));
  EXPECT_TRUE(has_color(draw(true), {250, 250, 250}));
  EXPECT_FALSE(has_color(draw(false), kWrongColor));
  EXPECT_TRUE(has_color(draw(false), {10, 10, 10}));
}

TEST(Interpretation, DrawsImageTargetMaskAndPredictedMask) {
  const TempFolder temp;
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::rand({2, 3, 8, 8})},
      Tensors{torch::ones({2, 8, 8}, torch::kLong)});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"sky", "road"};
  torch::nn::Sequential net(torch::nn::Conv2d(3, 2, 1));
  const torch::NoGradGuard no_grad;
  net->parameters()[1].copy_(torch::tensor({9.f, -9.f}));
  Learner learn(data, net, quiet());
  const torch::Tensor page = Interpretation::from(learn).draw_top_losses(2);
  EXPECT_NEAR(page.size(1), 3 * 190, 20);
  const torch::Tensor colors = mask_colors(2);  // of the legend
  for (int i = 0; i < 2; ++i) {
    const auto* color = colors.const_data_ptr<uint8_t>() + 3LL * i;
    EXPECT_TRUE(has_color(page, {color[0], color[1], color[2]})) << i;
  }
}

// Only a corner of the second image is not ignored; its prediction is wrong.
TEST(Interpretation, TopLossesOfMasksSkipIgnoredPixels) {
  torch::Tensor masks = torch::ones({2, 8, 8}, torch::kLong);
  masks[0].slice(0, 0, 7).fill_(0);
  masks[1].slice(0, 1).fill_(2);
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::rand({2, 3, 8, 8})},
      Tensors{masks});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  torch::nn::Sequential net(torch::nn::Conv2d(3, 2, 1));
  const torch::NoGradGuard no_grad;
  net->parameters()[0].zero_();
  net->parameters()[1].copy_(torch::tensor({1.f, -1.f}));
  Learner learn(
      data,
      net,
      quiet(
          {.loss = torch::nn::CrossEntropyLoss(
               torch::nn::CrossEntropyLossOptions().ignore_index(2))}));
  const std::vector<TopLoss> top = Interpretation::from(learn).top_losses();
  ASSERT_EQ(top.size(), 2U);
  EXPECT_EQ(top[0].index, 1);
  const double wrong = std::log1p(std::exp(2)),
               right = std::log1p(std::exp(-2));
  EXPECT_NEAR(top[0].loss, wrong, 1e-5);
  EXPECT_NEAR(top[1].loss, (7 * right + wrong) / 8, 1e-5);
  EXPECT_NEAR(learn.validate().loss, (56 * right + 16 * wrong) / 72, 1e-5);
}

TEST(Interpretation, NamesALossWithoutPerSampleValues) {
  const Shades shades;
  Learner learn(
      shades.data(),
      Shades::net(),
      quiet({.loss = Loss([](torch::Tensor pred, torch::Tensor) {
               return pred.sum();
             })}));
  expect_error<c10::ValueError>(
      [&] { Interpretation::from(learn); },
      {"one number for the whole batch", "mean_of"});
}

TEST(ClassificationInterpretation, CountsPairsOfActualAndPredictedClass) {
  Learner learn = learner_with({0, 0, 0, 1, 1, 2}, {0, 1, 1, 1, 2, 2});
  const auto interp = ClassificationInterpretation::from(learn);
  EXPECT_TRUE(torch::equal(
      interp.confusion_matrix(),
      torch::tensor({{1, 2, 0}, {0, 1, 1}, {0, 0, 1}})));
}

TEST(ClassificationInterpretation, ListsTheMostConfusedFirst) {
  Learner learn = learner_with({0, 0, 0, 1, 1, 2}, {0, 1, 1, 1, 2, 2});
  const auto interp = ClassificationInterpretation::from(learn);
  const std::vector<Confusion> pairs = interp.most_confused();
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].actual, "a");
  EXPECT_EQ(pairs[0].predicted, "b");
  EXPECT_EQ(pairs[0].count, 2);
  EXPECT_EQ(pairs[1].actual, "b");
  EXPECT_EQ(interp.most_confused(2).size(), 1u);
}

// The values of scikit-learn's classification_report.
TEST(ClassificationInterpretation, ReportsEachClassLikeScikitLearn) {
  Learner learn = learner_with({0, 0, 0, 1, 1, 2}, {0, 1, 1, 1, 2, 2});
  const auto report = ClassificationInterpretation::from(learn).report();
  ASSERT_EQ(report.classes.size(), 3u);
  EXPECT_EQ(report.classes[0].precision, 1);
  EXPECT_NEAR(report.classes[0].recall, 1. / 3, 1e-12);
  EXPECT_NEAR(report.classes[2].f1, 2. / 3, 1e-12);
  EXPECT_EQ(report.classes[1].support, 2);
  EXPECT_NEAR(report.macro.f1, 0.52222222222222223, 1e-12);
  EXPECT_NEAR(report.weighted.precision, 0.69444444444444443, 1e-12);
  EXPECT_EQ(report.micro.f1, 0.5);  // the accuracy
}

TEST(SegmentationReport, ReportsTheOverlapOfEachClass) {
  Learner learn = learner_with({0, 0, 0, 1, 1, 2}, {0, 1, 1, 1, 2, 2});
  const SegmentationReport report = segmentation_report(learn);
  const std::vector<double> ious = {1. / 3, 1. / 4, 1. / 2},
                            dices = {1. / 2, 2. / 5, 2. / 3};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(report.classes[i].iou, ious[i], 1e-12);
    EXPECT_NEAR(report.classes[i].dice, dices[i], 1e-12);
  }
  EXPECT_NEAR(report.mean_iou, 13. / 36, 1e-12);
  EXPECT_NE(report.to_string().find("0.2500"), std::string::npos);
}

// On TERN_SEGMENTATION's 1,000 sets of masks, or on a few stored ones.
TEST(SegmentationReport, MatchesScikitLearnForEachClass) {
  const char* const live = std::getenv("TERN_SEGMENTATION");
  const auto sets = nlohmann::json::parse(std::ifstream(
      live ? live
           : in_tests_folder("vision/interpret/segmentation_fixture.json")));
  ASSERT_GE(sets.size(), 12U);
  for (const auto& set : sets) {
    const auto mask = [&](const char* name) {
      return torch::tensor(set[name].get<std::vector<int64_t>>())
          .view(set["shape"].get<std::vector<int64_t>>());
    };
    const int64_t classes = set["classes"];
    const torch::Tensor logits = torch::one_hot(mask("preds"), classes)
                                     .permute({0, 3, 1, 2})
                                     .to(torch::kFloat);
    const auto dataset = std::make_shared<TensorDataset>(
        Tensors{logits.contiguous()},
        Tensors{mask("actual")});
    // The last batch is small.
    DataBunch data =
        DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
    data.device = torch::kCPU;
    torch::nn::Sequential net(torch::nn::Conv2d(classes, classes, 1));
    {
      const torch::NoGradGuard no_grad;
      net->parameters()[0].copy_(
          torch::eye(classes).view({classes, classes, 1, 1}));
      net->parameters()[1].zero_();
    }
    Learner learn(data, net, quiet({.loss = torch::nn::CrossEntropyLoss()}));
    const SegmentationReport report = segmentation_report(learn);
    for (int64_t i = 0; i < classes; ++i) {
      const auto& row = report.classes.at(i);
      const auto expect_value = [&](const char* name, double value) {
        const auto& expected = set[name][i];
        if (expected.is_null()) {
          EXPECT_TRUE(std::isnan(value)) << name << " " << value;
        } else {
          EXPECT_NEAR(value, expected.get<double>(), 1e-12) << name;
        }
      };
      expect_value("accuracy", row.accuracy);
      expect_value("dice", row.dice);
      expect_value("iou", row.iou);
    }
  }
}

TEST(ClassificationInterpretation, DrawsTheMatrixAsSvgAndPng) {
  const TempFolder temp;
  Learner learn = learner_with({0, 0, 0, 1, 1, 2}, {0, 1, 1, 1, 2, 2});
  const auto interp = ClassificationInterpretation::from(learn);
  interp.plot_confusion_matrix(temp / "a.svg");
  const std::string svg = text_of(temp / "a.svg");
  for (const char* text : {"predicted", "actual", "&lt;c&gt;", ">2<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  interp.plot_confusion_matrix(temp / "a.png", /*normalize=*/true);
  EXPECT_TRUE(has_color(
      read_image((temp / "a.png").string()),
      {8, 69, 148}));  // all of class <c> are right
  expect_error<c10::ValueError>(
      [&] { interp.plot_confusion_matrix(temp / "a.gif"); },
      {"a.gif", ".png or .svg"});
}

TEST(ClassificationInterpretation, OmitsAnIgnoredClass) {
  Learner learn =
      learner_with({0, 3, 1, 3}, {0, 1, 2, 2}, {"a", "b", "c", "void"});
  const auto interp = ClassificationInterpretation::from(learn);
  EXPECT_TRUE(torch::equal(
      interp.confusion_matrix(),
      torch::tensor({{1, 0, 0}, {0, 0, 1}, {0, 0, 0}})));
  EXPECT_EQ(interp.most_confused().size(), 1u);
  const TempFolder temp;
  interp.plot_confusion_matrix(temp / "a.svg");
  EXPECT_EQ(text_of(temp / "a.svg").find("void"), std::string::npos);
}

TEST(ClassificationInterpretation, OmitsAnIgnoredClassThatTheModelPredicts) {
  Learner learn = learner_with(
      {0, 1, 1, 1, 2, 0},
      {0, 1, 2, 0, 0, 1},
      {"a", "void", "c"},
      /*ignore_index=*/1);
  const auto interp = ClassificationInterpretation::from(learn);
  EXPECT_TRUE(torch::equal(
      interp.confusion_matrix(),
      torch::tensor({{1, 1, 0}, {0, 0, 0}, {1, 0, 0}})));
  // Equals scikit-learn with labels=[0, 2] on the samples that are not ignored:
  // class a has one hit, two predictions and two targets; class c has no hit.
  const Validation validation = learn.validate();
  EXPECT_NEAR(validation["accuracy"], 1. / 3, 1e-12);
  for (const char* metric : {"dice", "f1"}) {
    EXPECT_NEAR(validation[metric], (1. / 2 + 0) / 2, 1e-12) << metric;
  }
  EXPECT_NEAR(validation["jaccard"], (1. / 3 + 0) / 2, 1e-12);
  // Scores of class a: 5 and 0 for its samples, 5 for the other; of class c:
  // all equal.
  EXPECT_NEAR(
      validation["average_precision"],
      ((1. / 2 + 2. / 3) / 2 + 1. / 3) / 2,
      1e-12);
  const ClassificationReport report = interp.report();
  ASSERT_EQ(report.classes.size(), 2u);
  EXPECT_EQ(report.classes[1].name, "c");
  EXPECT_EQ(report.macro.f1, 0.25);
  EXPECT_EQ(report.micro.precision, 1. / 2);
  EXPECT_NEAR(report.micro.recall, 1. / 3, 1e-12);
  const SegmentationReport pixels = segmentation_report(learn);
  EXPECT_NEAR(pixels.accuracy, 1. / 3, 1e-12);
  EXPECT_EQ(pixels.classes[1].pixels, 0);
  EXPECT_TRUE(std::isnan(pixels.classes[1].dice));
  EXPECT_EQ(pixels.to_string().find("-nan"), std::string::npos);
  EXPECT_EQ(pixels.mean_dice, 0.25);
  EXPECT_NEAR(pixels.mean_iou, 1. / 6, 1e-12);
}

TEST(ClassificationInterpretation, UsesTheSameThresholdAsPredict) {
  // Probabilities of class 1: 0.6 and 0.9.
  const auto logits = torch::tensor({std::log(1.5f), std::log(9.f)});
  const auto with = [&](const torch::Tensor& x,
                        const torch::Tensor& targets,
                        const torch::nn::AnyModule& identity) {
    const auto dataset =
        std::make_shared<TensorDataset>(Tensors{x}, Tensors{targets});
    DataBunch data =
        DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
    data.device = torch::kCPU;
    data.classes = {"no", "yes"};
    data.outputs = {{.kind = TargetKind::category, .threshold = 0.8}};
    torch::nn::Sequential net(identity);
    const torch::NoGradGuard no_grad;
    net->parameters()[0].fill_(1);
    net->parameters()[1].zero_();
    return Learner(data, net, quiet({.loss = torch::nn::BCEWithLogitsLoss()}));
  };
  const auto expected = torch::tensor({{0, 0}, {1, 1}});
  Learner samples = with(
      logits.view({2, 1}),
      torch::ones({2, 1}),
      torch::nn::AnyModule(torch::nn::Linear(1, 1)));
  EXPECT_EQ(samples.predict(logits[0].view(1)).label, "no");
  const auto interp = ClassificationInterpretation::from(samples);
  EXPECT_TRUE(torch::equal(interp.confusion_matrix(), expected));
  Learner masks = with(
      logits.view({2, 1, 1, 1}),
      torch::ones({2, 1, 1, 1}, torch::kLong),
      torch::nn::AnyModule(torch::nn::Conv2d(1, 1, 1)));
  EXPECT_TRUE(torch::equal(
      ClassificationInterpretation::from(masks).confusion_matrix(),
      expected));
  EXPECT_EQ(segmentation_report(masks).accuracy, 0.5);
}

TEST(ClassificationInterpretation, DrawsCountsWithAnyNumberOfDigits) {
  const TempFolder temp;
  Learner learn = learner_with(
      std::vector<int64_t>(123'456, 1),
      std::vector<int64_t>(123'456, 1));
  const auto interp = ClassificationInterpretation::from(learn);
  interp.plot_confusion_matrix(temp / "a.svg");
  EXPECT_NE(text_of(temp / "a.svg").find(">123456<"), std::string::npos);
}

TEST(ClassificationInterpretation, DrawsNamesInAnyLanguage) {
  const TempFolder temp;
  Learner learn = learner_with({0, 1, 2}, {0, 1, 2}, {"Grün", "日本", "قطة"});
  ClassificationInterpretation::from(learn).plot_confusion_matrix(
      temp / "a.svg");
  for (const char* name : {">Grün<", ">日本<", ">قطة<"}) {
    EXPECT_NE(text_of(temp / "a.svg").find(name), std::string::npos) << name;
  }
}

TEST(ClassificationInterpretation, DrawsAnyNumberOfClasses) {
  const TempFolder temp;
  for (const int64_t classes : {1, 2, 40, 120}) {
    const torch::Tensor x = torch::eye(classes);
    const auto dataset = std::make_shared<TensorDataset>(
        Tensors{x},
        Tensors{torch::arange(classes, torch::kLong)});
    DataBunch data =
        DataBunch::create(dataset, dataset, {.batch_size = 64, .workers = 0});
    data.device = torch::kCPU;
    Learner learn(
        data,
        torch::nn::Sequential(torch::nn::Linear(classes, classes)),
        quiet());
    const auto interp = ClassificationInterpretation::from(learn);
    interp.plot_confusion_matrix(temp / "a.png");
    EXPECT_GE(read_image((temp / "a.png").string()).size(0), 100);
  }
}

TEST(ClassificationInterpretation, RejectsNumericTargets) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::rand({4, 2})},
      Tensors{torch::rand({4, 1})});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, torch::nn::Sequential(torch::nn::Linear(2, 1)), quiet());
  expect_error<c10::ValueError>(
      [&] { ClassificationInterpretation::from(learn); },
      {"not class indices", "Interpretation"});
}

TEST(ClassificationSection, ShowsConfusionsAndTopLossesInAReport) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  const auto interp = ClassificationInterpretation::from(learn);
  ASSERT_FALSE(interp.most_confused().empty());
  HtmlPage page("Report");
  classification_section(interp, 2)(page);
  const std::string html = page.to_string();
  for (const std::string& word :
       {std::string("Confusion matrix"),
        interp.most_confused()[0].actual,
        std::string("Largest losses"),
        std::string("data:image/png")}) {
    EXPECT_NE(html.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace tern::interpretation_test
