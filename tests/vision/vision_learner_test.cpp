#include "tern/vision/vision_learner.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/types.h>

#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/show.h"
#include "tern/vision/models/backbone.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"

namespace tern::vision_learner_test {
namespace {

// Three convolutions: fast, and enough to learn the squares.
class TinyBodyImpl final : public torch::nn::Cloneable<TinyBodyImpl>,
                           public Backbone {
 public:
  TinyBodyImpl() { reset(); }
  void reset() override {
    layers_ = {
        register_module("fine", ConvLayer(3, 8, ConvLayerOptions{3, 2})),
        register_module("middle", ConvLayer(8, 16, ConvLayerOptions{3, 2})),
        register_module("coarse", ConvLayer(16, 32, ConvLayerOptions{3, 2}))};
  }
  std::vector<int64_t> stage_channels() const override { return {8, 16, 32}; }
  torch::Tensor stage(size_t index, const torch::Tensor& x) override {
    return layers_[index]->forward(x);
  }

 private:
  std::vector<ConvLayer> layers_;
};

VisionArch tiny() {
  return {
      "tiny",
      [](int64_t) { return VisionBody(std::make_shared<TinyBodyImpl>()); },
      "coarse",
      "classifier."};
}

// Bright squares in dark images: class 0 on the left, class 1 on the right.
// With masks, the square's pixels have the value `square`.
DataBunch squares(bool with_masks, int64_t square = 1, int64_t count = 64) {
  torch::manual_seed(3);
  torch::Tensor images = torch::randint(60, {count, 32, 32, 3}, torch::kByte);
  torch::Tensor masks = torch::zeros({count, 32, 32}, torch::kLong);
  torch::Tensor labels = torch::arange(count) % 2;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t left = i % 2 * 16;
    images[i].slice(0, 8, 24).slice(1, left, left + 16).add_(180);
    masks[i].slice(0, 8, 24).slice(1, left, left + 16).fill_(square);
  }
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{images},
      Tensors{with_masks ? masks : labels});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 8, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"left", "right"};
  data.batch_transforms.push_back(normalize({0.5, 0.5, 0.5}, {0.3, 0.3, 0.3}));
  return data;
}

LearnerOptions quiet() {
  return {.metrics = {accuracy()}, .seed = 5, .sink = silent()};
}

LearnerOptions quiet_numbers() {
  return {.seed = 5, .sink = silent()};
}

std::filesystem::path pretrained_file(const TempFolder& temp) {
  torch::manual_seed(1);
  const auto file = temp / "tiny.safetensors";
  save_safetensors(file, Model(tiny().make_body(3).module).state_dict());
  return file;
}

std::vector<std::string> learning(Learner& learn) {
  std::vector<std::string> names;
  for (const ModelTensor& p : learn.model().parameters()) {
    if (p.tensor.requires_grad() && p.layer == LayerKind::other) {
      names.push_back(p.name);
    }
  }
  return names;
}

TEST(VisionLearner, HasThreeLayerGroupsForEveryNetwork) {
  const auto first_of_group = [](const VisionArch& arch, int64_t group) {
    auto learn = vision_learner(squares(false), arch, {.learner = quiet()});
    EXPECT_EQ(parts_of(learn).groups.size(), 3) << arch.name();
    EXPECT_EQ(learn.model().state().back().name, "head.8.weight");
    return learning(learn.freeze_to(group)).front();
  };
  EXPECT_EQ(first_of_group(resnet18, 0), "body.conv1.weight");
  EXPECT_EQ(first_of_group(resnet18, 1), "body.layer3.0.conv1.weight");
  EXPECT_EQ(first_of_group(resnet18, 2), "head.4.weight");
  EXPECT_EQ(first_of_group(xresnet18, 1), "body.4.0.convpath.0.0.weight");
  EXPECT_EQ(first_of_group(mobilenet_v2, 1), "body.features.7.conv.0.0.weight");
}

TEST(VisionLearner, StartsFrozenBelowTheHeadWhenPretrained) {
  const TempFolder temp;
  auto learn = vision_learner(
      squares(false),
      tiny(),
      {.pretrained = pretrained_file(temp), .learner = quiet()});
  EXPECT_EQ(
      learning(learn),
      (std::vector<std::string>{"head.4.weight", "head.8.weight"}));
  // Normalization layers in frozen groups keep training, as in fastai.
  const StateDict before = learn.state_dict();
  const torch::Tensor conv = before["body.coarse.0.weight"].clone();
  const torch::Tensor norm = before["body.coarse.1.weight"].clone();
  const torch::Tensor head = before["head.8.weight"].clone();
  learn.fit(1);
  const StateDict after = learn.state_dict();
  EXPECT_TRUE(torch::equal(after["body.coarse.0.weight"], conv));
  EXPECT_FALSE(torch::equal(after["body.coarse.1.weight"], norm));
  EXPECT_FALSE(torch::equal(after["head.8.weight"], head));
}

TEST(VisionLearner, SpreadsLearningRatesOverItsGroups) {
  auto learn = vision_learner(squares(false), tiny(), {.learner = quiet()});
  learn.set_learning_rates({1e-5, 1e-3});
  const auto rates = learn.learning_rates();
  ASSERT_EQ(rates.size(), 3u);
  EXPECT_DOUBLE_EQ(rates[0], 1e-5);
  EXPECT_NEAR(rates[1], 1e-4, 1e-12);
  EXPECT_DOUBLE_EQ(rates[2], 1e-3);
}

TEST(VisionLearner, FineTunesToAHighAccuracy) {
  const TempFolder temp;
  auto learn = vision_learner(
      squares(false),
      tiny(),
      {.pretrained = pretrained_file(temp), .learner = quiet()});
  learn.fine_tune(6, FineTuneOptions{.base_lr = 1e-2});
  EXPECT_EQ(learning(learn).front(), "body.fine.0.weight");
  EXPECT_GE(learn.validate().metrics[0].value, 0.9);
}

TEST(VisionLearner, LoadsTheBodyOfADifferentVisionLearner) {
  const TempFolder temp;
  LearnerOptions options = quiet();
  options.path = temp.path();
  auto first = vision_learner(
      squares(false),
      tiny(),
      {.outputs = 5, .learner = options});
  first.save("first");
  auto second = vision_learner(
      squares(false),
      tiny(),
      {.pretrained = temp / "models/first.safetensors", .learner = options});
  const char* name = "body.coarse.0.weight";
  EXPECT_TRUE(
      torch::equal(first.state_dict()[name], second.state_dict()[name]));
  EXPECT_EQ(second.state_dict()["head.8.weight"].size(0), 2);
}

TEST(VisionLearner, KeepsBatchesChannelsLast) {
  auto learn = vision_learner(squares(false), tiny(), {.learner = quiet()});
  Batch batch = *learn.data().train->epoch(0).next();
  learn.data().batch_transforms[0](batch, {});
  EXPECT_TRUE(batch.inputs[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST(VisionLearner, UsesSigmoidForMultiLabelTargets) {
  const TempFolder temp;
  std::vector<std::string> paths;
  for (int i = 0; i < 2; ++i) {
    paths.push_back((temp / fmt::format("{}.png", i)).string());
    save_image(paths.back(), torch::rand({3, 32, 32}));
  }
  DataBunch data = DataBunch::create(
      std::make_shared<ImageDataset>(TargetedImages{
          paths,
          std::make_shared<TensorTargets>(
              torch::tensor({{1.f, 0.f}, {1.f, 1.f}}))}),
      nullptr,
      {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"red", "round"};
  auto learn = vision_learner(data, tiny(), {.learner = {.sink = silent()}});
  EXPECT_EQ(learn.options().loss.activation(), Activation::sigmoid);
}

TEST(VisionLearner, RejectsUnusableDataAndOptions) {
  DataBunch data = squares(false);
  data.classes.clear();
  expect_error<c10::ValueError>(
      [&] { vision_learner(data, tiny()); },
      {"outputs is 0", "0 class names"});
}

UnetLearnerOptions unet_options() {
  return {.outputs = 2, .learner = quiet()};
}

TEST(UnetLearner, LearnsAMask) {
  auto learn = unet_learner(squares(true), tiny(), unet_options());
  EXPECT_EQ(parts_of(learn).groups.size(), 3);
  learn.fit_one_cycle(6, 5e-3);
  EXPECT_GE(learn.validate().metrics[0].value, 0.9);
}

// The exported network supports any size, where a graph would support only one.
TEST(UnetLearner, IsExportedByItsArchitectureName) {
  const TempFolder temp;
  auto learn =
      unet_learner(squares(true, 1, 8), regnet_y_400mf, unet_options());
  learn.export_model(temp / "unet.safetensors");
  auto [model, card] = load_exported(temp / "unet.safetensors");
  EXPECT_EQ(card.architecture.name, "dynamic_unet");
  const torch::NoGradGuard no_grad;
  learn.model().eval();
  for (const int64_t width : {32, 48}) {
    const torch::Tensor x = torch::rand({2, 3, 32, width});
    EXPECT_TRUE(
        torch::equal(model.forward({x})[0], learn.model().forward({x})[0]));
  }
}

TEST(UnetLearner, BuildsTheNetworkFromItsOptions) {
  UnetLearnerOptions options = unet_options();
  options.in_channels = 1;
  options.blur = true;
  options.last_cross = false;
  auto learn = unet_learner(squares(true, 1, 8), resnet18, options);
  const DynamicUnet expected(
      VisionArch(resnet18),
      DynamicUnetOptions{
          .outputs = 2,
          .in_channels = 1,
          .blur = true,
          .last_cross = false});
  const auto net =
      std::dynamic_pointer_cast<DynamicUnetImpl>(learn.model().module());
  ASSERT_TRUE(net);
  EXPECT_EQ(net->architecture(), expected->architecture());
}

TEST(VisionLearner, AcceptsImagesWithAnyNumberOfChannels) {
  auto learn = vision_learner(squares(false), resnet18, {.in_channels = 1});
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(
      learn.model().forward({torch::rand({2, 1, 32, 32})})[0].sizes(),
      torch::IntArrayRef({2, 2}));
}

TEST(VisionLearner, PredictsNumbersWithinYRangeAndStoresTheRange) {
  DataBunch data = squares(false);
  data.classes.clear();
  const auto images =
      std::dynamic_pointer_cast<const TensorDataset>(data.train->dataset_ptr());
  const Batch all = images->get_batch({0, 1, 2, 3, 4, 5, 6, 7}, {});
  const auto numbers = std::make_shared<TensorDataset>(
      all.inputs,
      Tensors{all.targets[0].to(torch::kFloat) * 2});
  data.train = data.valid = std::make_shared<DataLoader>(
      numbers,
      DataLoaderOptions{.batch_size = 4, .workers = 0});
  auto learn = vision_learner(
      data,
      mobilenet_v3_small,
      {.outputs = 1, .head = {.y_range = {0, 2}}, .learner = quiet_numbers()});
  const torch::Tensor preds = learn.get_preds().preds;
  EXPECT_TRUE(((preds >= 0) & (preds <= 2)).all().item<bool>());
  const auto architecture = architecture_of(learn.model());
  ASSERT_TRUE(architecture);
  EXPECT_NE(
      architecture->options.find("\"y_range\": [0, 2]"),
      std::string::npos)
      << architecture->options;
  Model again = build_model(*architecture);
  again.load_state_dict(learn.model().state_dict());
  again.eval();
  learn.model().eval();
  const torch::Tensor x = torch::randn({2, 3, 32, 32});
  EXPECT_TRUE(
      torch::equal(again.forward({x})[0], learn.model().forward({x})[0]));
}

TEST(SegmentationReport, CountsEachClassOfPixels) {
  auto learn = unet_learner(squares(true), tiny(), unet_options());
  const auto report = segmentation_report(learn);
  ASSERT_EQ(report.classes.size(), 2u);
  EXPECT_EQ(report.classes[0].name, "left");
  // The square covers a quarter of each of the 64 images.
  EXPECT_EQ(report.classes[1].pixels, 64 * 256);
  EXPECT_EQ(report.classes[0].pixels, 64 * 768);
  EXPECT_NEAR(report.accuracy, learn.validate().metrics[0].value, 1e-9);
  EXPECT_NEAR(
      report.accuracy,
      .75 * report.classes[0].accuracy + .25 * report.classes[1].accuracy,
      1e-9);
  EXPECT_NE(report.to_string().find("right"), std::string::npos);
}

TEST(SegmentationReport, SkipsPixelsWithoutAClass) {
  auto options = unet_options();
  options.learner.loss = torch::nn::CrossEntropyLoss(
      torch::nn::CrossEntropyLossOptions().ignore_index(5));
  auto learn =
      unet_learner(squares(/*with_masks=*/true, /*square=*/5), tiny(), options);
  const auto report = segmentation_report(learn);
  ASSERT_EQ(report.classes.size(), 2u);
  EXPECT_EQ(report.classes[0].pixels, 64 * 768);
  EXPECT_EQ(report.classes[1].pixels, 0);
  EXPECT_TRUE(std::isnan(report.classes[1].accuracy));
  EXPECT_DOUBLE_EQ(report.mean_accuracy, report.accuracy);
}

TEST(ShowResults, DrawsTheMasksOfAUnet) {
  const TempFolder temp;
  auto learn = unet_learner(squares(true), tiny(), unet_options());
  show_results(learn, temp / "masks.png", Split::valid, {.count = 2});
  EXPECT_TRUE(std::filesystem::exists(temp / "masks.png"));
  EXPECT_EQ(mask_colors(20).sizes().vec(), (std::vector<int64_t>{20, 3}));
}

}  // namespace
}  // namespace tern::vision_learner_test
