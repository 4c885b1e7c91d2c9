#include "tern/vision/interpret/grad_cam.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/vision/shades.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/models/cnn/resnet.h"

namespace tern::grad_cam_test {
namespace {

using namespace testing_support;  // NOLINT

// The network and image of grad_cam_fixture.py.
torch::nn::Sequential net() {
  using namespace torch::nn;  // NOLINT
  torch::nn::Sequential model(
      Conv2d(Conv2dOptions(3, 4, 3).padding(1)),
      ReLU(),
      Conv2d(Conv2dOptions(4, 5, 3).stride(2).padding(1)),
      ReLU(),
      AdaptiveAvgPool2d(1),
      Flatten(),
      Linear(5, 3));
  const torch::NoGradGuard no_grad;
  double index = 0;
  for (torch::Tensor& parameter : model->parameters()) {
    const torch::Tensor steps =
        torch::arange(parameter.numel(), torch::kDouble);
    parameter.copy_(
        ((steps * 0.37 + index++).cos() * 0.4).reshape(parameter.sizes()));
  }
  return model;
}

torch::Tensor image() {
  const torch::Tensor steps = torch::arange(10 * 12 * 3, torch::kLong);
  return (steps * steps * 7 + steps * 13)
      .remainder(256)
      .reshape({10, 12, 3})
      .to(torch::kByte);
}

Learner learner_with(Model model) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{image().unsqueeze(0)},
      Tensors{torch::zeros({1}, torch::kLong)});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 1, .workers = 0});
  data.device = torch::kCPU;
  data.batch_transforms = {normalize({0, 0, 0}, {1, 1, 1})};
  data.classes = {"a", "b", "c"};
  return Learner(data, std::move(model), quiet());
}

TEST(GradCam, EqualsPython) {
  const char* live = std::getenv("TERN_GRAD_CAM");
  const auto fixture = nlohmann::json::parse(std::ifstream(
      live ? live : in_tests_folder("vision/grad_cam_fixture.json")));
  Learner learn = learner_with(net());
  for (const auto& c : fixture["cases"]) {
    const GradCam cam = grad_cam(
        learn,
        image(),
        {.layer = c["layer"].get<std::string>(),
         .target = c["target"].get<int64_t>()});
    const torch::Tensor expected =
        torch::tensor(c["heat"].get<std::vector<float>>())
            .view(c["shape"].get<std::vector<int64_t>>());
    EXPECT_TRUE(torch::allclose(cam.heat, expected, 1e-4, 1e-5))
        << c["layer"] << " " << c["target"];
  }
  const GradCam likeliest = grad_cam(learn, image());
  EXPECT_EQ(likeliest.target, fixture["likeliest"].get<int64_t>());
  EXPECT_EQ(likeliest.layer, "3");  // the last layer with height and width
  EXPECT_EQ(likeliest.prediction.index, likeliest.target);
}

TEST(GradCam, LeavesTheModelUnchanged) {
  Learner learn = learner_with(net());
  for (const bool training : {true, false}) {
    learn.model().train(training);
    grad_cam(learn, image());
    EXPECT_EQ(learn.model().is_training(), training);
  }
  for (const ModelTensor& parameter : learn.model().parameters()) {
    EXPECT_FALSE(parameter.tensor.grad().defined()) << parameter.name;
  }
}

TEST(GradCam, WorksForFrozenModels) {
  Learner learn = learner_with(net());
  const torch::Tensor heat = grad_cam(learn, image()).heat;
  for (const ModelTensor& parameter : learn.model().parameters()) {
    parameter.tensor.set_requires_grad(false);
  }
  EXPECT_TRUE(torch::equal(grad_cam(learn, image()).heat, heat));
}

TEST(GradCam, WorksInHalfPrecision) {
  Learner learn = learner_with(net());
  const torch::Tensor heat = grad_cam(learn, image()).heat;
  learn.to_bf16();
  const GradCamOptions options = {.target = grad_cam(learn, image()).target};
  EXPECT_TRUE(
      torch::allclose(grad_cam(learn, image(), options).heat, heat, 0, 0.1));
}

TEST(GradCam, FindsTheBlocksOfAResNet) {
  Learner learn = learner_with(resnet18({.num_classes = 3}));
  const torch::Tensor photo = torch::randint(256, {128, 128, 3}, torch::kByte);
  const GradCam cam = grad_cam(learn, photo);
  EXPECT_EQ(cam.layer, "layer4.1");
  EXPECT_EQ(cam.heat.sizes(), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(
      grad_cam(learn, photo, {.layer = "layer2.1"}).heat.sizes(),
      (std::vector<int64_t>{16, 16}));
}

TEST(GradCam, ErrorNamesTheAvailableLayers) {
  Learner learn = learner_with(net());
  expect_error<c10::ValueError>(
      [&] { grad_cam(learn, image(), {.layer = "conv9"}); },
      {"no layer \"conv9\"", "0, 1, 2, 3"});
  expect_error<c10::ValueError>(
      [&] { grad_cam(learn, image(), {.layer = "6"}); },
      {"layer \"6\" has no height"});
  expect_error<c10::ValueError>(
      [&] { grad_cam(learn, image(), {.target = 3}); },
      {"class is 3"});
  expect_error<c10::ValueError>(
      [&] { grad_cam(learn, torch::rand({4})); },
      {"not an image"});
  // The Learner still works after these errors.
  grad_cam(learn, image());
}

TEST(GradCam, RejectsAModelWithoutALargeEnoughLayer) {
  const Shades shades;
  Learner learn(shades.data(), Shades::net(), quiet());
  expect_error<c10::ValueError>(
      [&] { plot_grad_cam(learn, shades / "valid/dark/10.png", "a.png"); },
      {"4 x 4 cells"});
}

TEST(GradCam, DrawsTheHeatMapBesideTheImage) {
  const Shades shades;
  torch::nn::Sequential model = net();
  model->push_back(torch::nn::Linear(3, 2));
  Learner learn(shades.data(), model, quiet());
  plot_grad_cam(learn, shades / "valid/dark/40.png", shades / "cam.png");
  const torch::Tensor picture = read_image((shades / "cam.png").string());
  EXPECT_TRUE(has_color(picture, {40, 40, 40}));
  EXPECT_NEAR(picture.size(1), 2 * 240, 50);
}

}  // namespace
}  // namespace tern::grad_cam_test
