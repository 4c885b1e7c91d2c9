#include "tern/vision/interpret/show.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/data_block.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/interpretation.h"
#include "tern/vision/interpret/visible_batch.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::show_test {
namespace {

using namespace testing_support;  // NOLINT

torch::Tensor picture(const std::filesystem::path& file) {
  return read_image(file.string());
}

TEST(ShowBatch, DrawsImagesBeforeNormalization) {
  const Shades shades;
  DataBunch data = shades.data();
  data.batch_transforms = {normalize({0.2, 0.3, 0.4}, {0.1, 0.2, 0.3})};
  show_batch(data, shades / "batch.png", Split::valid, {.count = 4});
  for (const uint8_t value : {10, 40, 250, 120}) {
    EXPECT_TRUE(has_color(picture(shades / "batch.png"), {value, value, value}))
        << static_cast<int>(value);
  }
}

TEST(ShowBatch, DrawsImagesAfterBatchAugmentation) {
  const Shades shades;
  class Red final : public Transform {
    void plan(SamplePlan& plan, SampleRng&) const override {
      plan.pixel_functions.push_back([](const auto& image) {
        for (int64_t i = 0; i < image.size.height * image.size.width; ++i) {
          image.pixels[3 * i] = 201;
          image.pixels[3 * i + 1] = image.pixels[3 * i + 2] = 99;
        }
      });
    }
  };
  const DataBunch data =
      shades.data({.batch_transforms = {std::make_shared<Red>()}});
  show_batch(data, shades / "batch.png");
  EXPECT_TRUE(has_color(picture(shades / "batch.png"), {201, 99, 99}));
  show_batch(data, shades / "valid.png", Split::valid);
  EXPECT_FALSE(has_color(picture(shades / "valid.png"), {201, 99, 99}));
}

TEST(ShowBatch, DrawsFloatingImagesOfAnyRange) {
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{torch::randn({4, 1, 8, 8}) * 7},
          Tensors{torch::zeros({4}, torch::kLong)}),
      nullptr,
      {.batch_size = 4, .workers = 0});
  const TempFolder temp;
  show_batch(data, temp / "a.png");
  EXPECT_TRUE(has_color(picture(temp / "a.png"), {0, 0, 0}));
}

TEST(ShowBatch, RejectsInputsThatAreNotImages) {
  const TempFolder temp;
  expect_error<c10::ValueError>(
      [&] { show_batch(point_data(), temp / "a.png"); },
      {"inputs are [32, 2] Float", "expected images"});
  expect_error<c10::ValueError>(
      [&] { show_batch(point_data(), temp / "a.png", Split::test); },
      {"no test loader"});
  const Shades shades;
  expect_error<c10::ValueError>(
      [&] {
        show_batch(shades.data(), temp / "a.png", Split::train, {.count = 0});
      },
      {"count is 0"});
}

TEST(ShowResults, MarksRightAndWrongPredictions) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  show_results(learn, shades / "results.png");
  EXPECT_TRUE(has_color(picture(shades / "results.png"), kRightColor));
  EXPECT_TRUE(has_color(picture(shades / "results.png"), kWrongColor));
  // All predictions on the training images are right.
  show_results(learn, shades / "train.png", Split::train);
  EXPECT_TRUE(has_color(picture(shades / "train.png"), kRightColor));
  EXPECT_FALSE(has_color(picture(shades / "train.png"), kWrongColor));
}

TEST(ShowResults, DrawsImageTargetAndPredictedMaskSideBySide) {
  const TempFolder temp;
  for (int i = 0; i < 4; ++i) {
    const std::string name = std::to_string(i) + ".png";
    write_image(temp / "images" / name, 24, 32);
    make_folders(temp / "masks");
    write_file(
        temp / "masks" / name,
        encode(cv::Mat(24, 32, CV_8UC1, cv::Scalar(i % 2)), ".png"));
  }
  const DataBunch data =
      DataBlock{
          .items = items_from_folder(temp / "images"),
          .split = split_at_random(0.5, 1),
          .label = label_from_func([&](const ImageItem& item) {
            const std::filesystem::path path(item.path);
            return (temp / "masks" / path.filename()).string();
          }),
          .target = TargetKind::mask,
          .classes = {"sky", "road"}}
          .bunch({.batch_size = 2, .workers = 0, .device = torch::kCPU});
  const torch::Tensor colors = mask_colors(2);
  const auto has_legend = [&](const torch::Tensor& page, int i) {
    const auto* color = colors.const_data_ptr<uint8_t>() + 3 * i;
    return has_color(page, {color[0], color[1], color[2]});
  };
  show_batch(
      data,
      temp / "batch.png",
      Split::valid,
      {.count = 2, .columns = 1});
  // The plain image is beside its mask.
  EXPECT_NEAR(picture(temp / "batch.png").size(1), 2 * 190, 40);
  Learner learn(
      data,
      torch::nn::Sequential(torch::nn::Conv2d(3, 2, 1)),
      quiet());
  show_results(learn, temp / "results.png", Split::valid, {.count = 2});
  const torch::Tensor page = picture(temp / "results.png");
  EXPECT_NEAR(page.size(0), 2 * 170, 60);
  EXPECT_NEAR(page.size(1), 3 * 190, 40);
  EXPECT_TRUE(has_legend(page, 0));
  EXPECT_TRUE(has_legend(page, 1));
}

TEST(MaskLegend, ListsTheClassesThatOccur) {
  const torch::Tensor mask = torch::tensor({{0, 2}, {255, 2}});
  const auto legend = mask_legend({mask}, {"sky", "road", "Bäume"}, 11);
  ASSERT_EQ(legend.size(), 2u);
  EXPECT_EQ(legend[0].text, "sky");
  EXPECT_EQ(legend[1].text, "Bäume");
}

TEST(ShowResults, OmitsTheClassThatTheLossIgnores) {
  const TempFolder temp;
  const auto colors = mask_colors(3);
  const auto has_legend = [&](int64_t ignored, int i) {
    const auto dataset = std::make_shared<TensorDataset>(
        Tensors{torch::full({1, 3, 8, 8}, 0.5)},  // the color of no class
        Tensors{torch::ones({1, 8, 8}, torch::kLong)});
    DataBunch data =
        DataBunch::create(dataset, dataset, {.batch_size = 1, .workers = 0});
    data.device = torch::kCPU;
    torch::nn::Sequential net(torch::nn::Conv2d(3, 3, 1));
    const torch::NoGradGuard no_grad;
    net->parameters()[1].copy_(torch::tensor({99.f, 0.f, 0.f}));
    Learner learn(
        data,
        net,
        quiet(
            {.loss = torch::nn::CrossEntropyLoss(
                 torch::nn::CrossEntropyLossOptions().ignore_index(ignored))}));
    show_results(learn, temp / "a.png");
    const auto* color = colors.const_data_ptr<uint8_t>() + 3 * i;
    const Rgb rgb = {color[0], color[1], color[2]};
    EXPECT_EQ(
        has_color(Interpretation::from(learn).draw_top_losses(1), rgb),
        has_color(picture(temp / "a.png"), rgb));
    return has_color(picture(temp / "a.png"), rgb);
  };
  EXPECT_TRUE(has_legend(/*ignored=*/-100, 1));
  EXPECT_TRUE(has_legend(/*ignored=*/1, 0));
  EXPECT_FALSE(has_legend(/*ignored=*/1, 1));
}

TEST(MaskPictures, AccuracyCoversOnlyKnownClasses) {
  const torch::Tensor image = torch::zeros({2, 2, 3}, torch::kByte);
  const torch::Tensor target = torch::tensor({{0, 1}, {1, 11}});
  const auto row = mask_pictures(image, target, torch::ones_like(target), 2);
  ASSERT_EQ(row.size(), 3u);
  EXPECT_TRUE(torch::equal(row[0].image, image));
  EXPECT_EQ(row[1].caption.at(0).text, "target");
  EXPECT_EQ(row[2].caption.at(0).text, "prediction, 67% right");
  // A void pixel shows the photo.
  EXPECT_EQ(row[1].image[1][1].sum().item<int>(), 0);
  EXPECT_EQ(mask_pictures(image, target, {}, 2).size(), 2u);
}

TEST(TargetText, DetectsTheTargetType) {
  const std::vector<std::string> classes = {"a", "b", "c"};
  DataBunch data;
  data.classes = classes;
  const auto kind = [&](const torch::Tensor& targets) {
    return target_kind(data, targets);
  };
  EXPECT_EQ(kind(torch::zeros({4}, torch::kLong)), TargetKind::category);
  EXPECT_EQ(kind(torch::zeros({4, 8, 8}, torch::kLong)), TargetKind::mask);
  EXPECT_EQ(kind(torch::zeros({4, 3})), TargetKind::multi_category);
  EXPECT_EQ(kind(torch::zeros({4, 2})), TargetKind::number);
  EXPECT_EQ(kind(torch::zeros({4})), TargetKind::number);
  // The description in the data takes precedence over dtype and shape.
  data.outputs = {{.kind = TargetKind::number}};
  EXPECT_EQ(kind(torch::zeros({4, 3})), TargetKind::number);
  data.outputs = {{.kind = TargetKind::category}};
  EXPECT_EQ(kind(torch::zeros({4})), TargetKind::category);
}

TEST(TargetText, DescribesAnyTarget) {
  const std::vector<std::string> classes = {"a", "b", "c"};
  using enum TargetKind;
  EXPECT_EQ(target_text(category, torch::tensor(1), classes), "b");
  EXPECT_EQ(target_text(category, torch::tensor(7), classes), "class 7");
  EXPECT_EQ(
      target_text(multi_category, torch::tensor({1.f, 0.f, 1.f}), classes),
      "a, c");
  EXPECT_EQ(target_text(multi_category, torch::zeros({3}), classes), "(none)");
  EXPECT_EQ(
      target_text(number, torch::tensor({0.5f, -2.f}), classes),
      "0.5, -2");
}

TEST(TargetText, DecodesPredictionsToTargets) {
  using enum TargetKind;
  const torch::Tensor preds = torch::tensor({{0.2f, 0.7f}, {0.6f, 0.1f}});
  EXPECT_TRUE(torch::equal(decoded(category, preds), torch::tensor({1, 0})));
  EXPECT_TRUE(torch::equal(
      decoded(multi_category, preds),
      torch::tensor({{0.f, 1.f}, {1.f, 0.f}})));
  EXPECT_TRUE(torch::equal(decoded(number, preds), preds));
  EXPECT_TRUE(torch::equal(
      decoded(category, torch::tensor({{0.2f}, {0.8f}})),
      torch::tensor({0, 1})));
}

}  // namespace
}  // namespace tern::show_test
