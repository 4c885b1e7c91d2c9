#include "tern/vision/interpret/multi_label_interpretation.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/pooling.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/decode/decode.h"

namespace tern::multi_label_interpretation_test {
namespace {

using namespace testing_support;  // NOLINT

const torch::Tensor kTargets = torch::tensor(
    {{1.f, 1.f, 0.f},
     {1.f, 0.f, 0.f},
     {1.f, 1.f, 0.f},
     {0.f, 1.f, 0.f},
     {0.f, 0.f, 0.f}});
const torch::Tensor kPreds = torch::tensor(
    {{1.f, 1.f, 0.f},
     {1.f, 1.f, 0.f},
     {0.f, 1.f, 1.f},
     {0.f, 0.f, 0.f},
     {0.f, 1.f, 0.f}});

/// The channels of an image become the outputs of an identity network: the
/// logits 3 and -3, whose sigmoids are above and below the threshold.
Learner learner_with(
    const torch::Tensor& targets = kTargets,
    std::vector<std::string> classes = {"haze", "road", "<water>"}) {
  const torch::Tensor images =
      ((kPreds - 0.5) * 6).view({5, 3, 1, 1}).expand({5, 3, 8, 8}).contiguous();
  const auto dataset =
      std::make_shared<TensorDataset>(Tensors{images}, Tensors{targets});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  data.classes = std::move(classes);
  torch::nn::Sequential net(
      torch::nn::AdaptiveAvgPool2d(1),
      torch::nn::Flatten(),
      torch::nn::Linear(3, 3));
  const torch::NoGradGuard no_grad;
  net->parameters()[0].copy_(torch::eye(3));
  net->parameters()[1].zero_();
  return Learner(data, net, quiet({.loss = torch::nn::BCEWithLogitsLoss()}));
}

void expect_row(
    const ClassificationReport::Row& row,
    const std::string& name,
    const std::vector<double>& values,
    int64_t support) {
  EXPECT_EQ(row.name, name);
  EXPECT_NEAR(row.precision, values[0], 1e-12) << name;
  EXPECT_NEAR(row.recall, values[1], 1e-12) << name;
  EXPECT_NEAR(row.f1, values[2], 1e-12) << name;
  EXPECT_EQ(row.support, support) << name;
}

// The values are from scikit-learn's classification_report with
// zero_division=0.
TEST(MultiLabelInterpretation, ReportsEachLabelLikeScikitLearn) {
  Learner learn = learner_with();
  const auto report = MultiLabelInterpretation::from(learn).report();
  ASSERT_EQ(report.classes.size(), 3u);
  expect_row(report.classes[0], "haze", {1, 2. / 3, .8}, 3);
  expect_row(report.classes[1], "road", {.5, 2. / 3, 4. / 7}, 3);
  expect_row(report.classes[2], "<water>", {0, 0, 0}, 0);
  expect_row(report.micro, "micro avg", {4. / 7, 2. / 3, 8. / 13}, 6);
  expect_row(report.macro, "macro avg", {.5, 4. / 9, 16. / 35}, 6);
  expect_row(report.weighted, "weighted avg", {.75, 2. / 3, 24. / 35}, 6);
  const std::string text = report.to_string();
  EXPECT_NE(text.find("road"), std::string::npos);
  EXPECT_NE(text.find("0.5714"), std::string::npos) << text;
}

TEST(MultiLabelInterpretation, UsesTheThresholdOfTheData) {
  Learner learn = learner_with();
  learn.data().outputs = {
      {.kind = TargetKind::multi_category, .threshold = 0.99}};
  const auto report = MultiLabelInterpretation::from(learn).report();
  EXPECT_EQ(report.micro.recall, 0);
}

TEST(MultiLabelInterpretation, CountsCoOccurrencesOfLabels) {
  Learner learn = learner_with();
  const auto interp = MultiLabelInterpretation::from(learn);
  EXPECT_TRUE(torch::equal(
      interp.co_occurrence(),
      torch::tensor({{3, 2, 0}, {2, 3, 0}, {0, 0, 0}})));
  EXPECT_TRUE(torch::equal(
      interp.co_occurrence(LabelSource::preds),
      torch::tensor({{2, 2, 0}, {2, 4, 1}, {0, 1, 1}})));
}

TEST(
    MultiLabelInterpretation,
    DrawsCoOccurrencesAsFractionsOfEachLabelsSamples) {
  const TempFolder temp;
  Learner learn = learner_with();
  const auto interp = MultiLabelInterpretation::from(learn);
  interp.plot_co_occurrence(temp / "a.svg", LabelSource::preds);
  const std::vector<uint8_t> bytes = read_file(temp / "a.svg");
  const std::string svg(bytes.begin(), bytes.end());
  for (const char* text :
       {"Labels that are predicted together",
        "&lt;water&gt;",
        ">0.50<",  // haze among 4 with road
        ">0.25<",  // water among them
        ">1.00<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  interp.plot_co_occurrence(temp / "a.png");
  EXPECT_GE(read_image((temp / "a.png").string()).size(0), 100);
  expect_error<c10::ValueError>(
      [&] { interp.plot_co_occurrence(temp / "a.gif"); },
      {"plot_co_occurrence", "a.gif"});
}

TEST(MultiLabelInterpretation, FindsAndDrawsTheTopLosses) {
  Learner learn = learner_with();
  const auto interp = MultiLabelInterpretation::from(learn);
  const std::vector<TopLoss> top = interp.top_losses();
  EXPECT_EQ(top.front().index, 2);  // two of its three labels are wrong
  EXPECT_EQ(top.back().index, 0);   // none is
  // Of each label log(1 + exp(-3)), 3 more where it is wrong.
  EXPECT_NEAR(top.front().loss, std::log1p(std::exp(-3.)) + 2, 1e-5);
  EXPECT_TRUE(has_color(interp.draw_top_losses(1), kWrongColor));
  EXPECT_TRUE(has_color(interp.draw_top_losses(1, false), kRightColor));
}

TEST(MultiLabelInterpretation, AddsASectionToAReport) {
  Learner learn = learner_with();
  HtmlPage page("Report");
  classification_section(MultiLabelInterpretation::from(learn), 2)(page);
  const std::string html = page.to_string();
  for (const char* word :
       {"macro avg",
        "0.6667",
        "probability of 0.5",
        "Labels that come together",
        "data:image/png"}) {
    EXPECT_NE(html.find(word), std::string::npos) << word;
  }
}

TEST(MultiLabelInterpretation, RejectsNumericTargets) {
  Learner learn = learner_with(kTargets, /*classes=*/{});
  expect_error<c10::ValueError>(
      [&] { MultiLabelInterpretation::from(learn); },
      {"name 0 classes", "0 or 1 for each"});
}

}  // namespace
}  // namespace tern::multi_label_interpretation_test
