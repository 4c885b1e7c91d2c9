// Compares the matting networks with matting_net.py's networks, with the same
// weights.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tolerance.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace tern::matting_parity_test {
namespace {

using nlohmann::json;
using torch::Tensor;

const json& fixture() {
  const char* live = std::getenv("TERN_MATTING");
  static const auto fixture = json::parse(std::ifstream(
      live ? live
           : in_tests_folder("vision/models/matting/matting_fixture.json")));
  return fixture;
}

// Fills the weights like matting_fixture.py.
void fill(const Model& model) {
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(1);
  const auto draw = [&](Tensor& values, double low, double high) {
    values = torch::rand(values.sizes(), generator) * (high - low) + low;
  };
  for (const ModelTensor& item : model.state()) {
    const std::string& name = item.name;
    Tensor tensor = item.tensor;
    if (!tensor.is_floating_point()) continue;
    Tensor values = torch::empty(tensor.sizes());
    if (tensor.dim() > 1) {
      const int64_t fan_in = tensor.numel() / tensor.size(0);
      const double bound = std::sqrt(6. / static_cast<double>(fan_in));
      draw(values, -bound, bound);
    } else if (name.ends_with("weight") || name.ends_with("running_var")) {
      draw(values, 0.5, 1.5);
    } else {
      draw(values, -0.2, 0.2);
    }
    if (name.starts_with("backbone.") && name.ends_with("bn3.weight")) {
      values.mul_(0.2);
    }
    if (name == "decoder.conv4.weight" || name == "refiner.conv4.weight") {
      values.mul_(0.1);
    }
    if (name == "decoder.conv4.bias" || name == "refiner.conv4.bias") {
      values.fill_(0.5);
    }
    tensor.copy_(values);
  }
}

Tensors pictures(int64_t n, bool is_base) {
  auto generator = at::detail::createCPUGenerator(7);
  Tensors pictures;
  for (int i = 0; i < 2; ++i) {
    pictures.push_back(
        is_base ? torch::rand({n, 3, 64, 80}, generator)
                : torch::rand({n, 3, 128, 96}, generator));
  }
  return pictures;
}

// Returns values spread over a tensor.
Tensor some(const Tensor& tensor, int64_t count) {
  const Tensor flat = tensor.detach().flatten();
  return flat
      .slice(0, 0, flat.numel(), std::max<int64_t>(1, flat.numel() / count));
}

double largest_difference(
    const Tensor& actual,
    const std::vector<double>& expected) {
  return (actual.to(torch::kDouble) - torch::tensor(expected, torch::kDouble))
      .abs()
      .max()
      .item<double>();
}

void expect_outputs(Model model, const json& c) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const Tensors outputs = model.forward(pictures(2, c["mode"] == "base"));
  ASSERT_EQ(outputs.size(), c["outputs"].size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const json& expected = c["outputs"][i];
    ASSERT_EQ(
        outputs[i].sizes().vec(),
        expected["shape"].get<std::vector<int64_t>>());
    EXPECT_LE(
        largest_difference(
            some(outputs[i], 20),
            expected["values"].get<std::vector<double>>()),
        1e-5)
        << "output " << i;
    EXPECT_NEAR(
        outputs[i].to(torch::kDouble).mean().item<double>(),
        expected["mean"].get<double>(),
        1e-5)
        << "output " << i;
  }
}

// In double, so that rounding is negligible.
void expect_gradients(Model model, const json& c) {
  model.module()->to(torch::kDouble);
  model.train();
  for (const auto& module : model.module()->modules()) {
    if (module->as<torch::nn::Dropout>()) module->eval();
  }
  Tensors inputs = pictures(3, c["mode"] == "base");
  for (Tensor& input : inputs) input = input.to(torch::kDouble);
  Tensor loss = torch::zeros({}, torch::kDouble);
  for (const Tensor& output : model.forward(inputs)) {
    if (output.requires_grad()) loss = loss + (output - 0.3).square().mean();
  }
  loss.backward();
  const auto parameters = model.parameters();
  ASSERT_EQ(parameters.size(), c["gradients"].size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto expected = c["gradients"][i].get<std::vector<double>>();
    const double largest = expected.front();
    expected.erase(expected.begin());
    const Tensor gradient = parameters[i].tensor.grad();
    const double allowed = 1e-5 * largest + 1e-12;
    EXPECT_LE(largest_difference(some(gradient, 2), expected), allowed)
        << parameters[i].name << ", whose largest is " << largest;
    EXPECT_NEAR(gradient.abs().max().item<double>(), largest, allowed)
        << parameters[i].name;
  }
}

// The stored fixture has one backbone; a live fixture has all.
std::vector<json> cases_of(MattingBackbone backbone) {
  std::vector<json> cases;
  for (const json& c : fixture()["cases"]) {
    if (c["backbone"] == to_string(backbone)) cases.push_back(c);
  }
  return cases;
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const ModelTensor& item : model.state()) names.push_back(item.name);
  return names;
}

class MattingParityTest : public testing::TestWithParam<MattingBackbone> {};

TEST_P(MattingParityTest, BaseMatchesNamesOutputsAndGradientsOfPython) {
  torch::set_num_threads(1);
  for (const json& c : cases_of(GetParam())) {
    if (c["mode"] != "base") continue;
    const Model model = MattingBase(MattingBaseOptions{GetParam()});
    EXPECT_EQ(names_of(model), c["names"].get<std::vector<std::string>>());
    fill(model);
    expect_outputs(model, c);
    if (c.contains("gradients")) expect_gradients(model, c);
  }
}

TEST_P(MattingParityTest, RefineMatchesOutputsAndGradientsOfPythonInEachMode) {
  torch::set_num_threads(1);
  const std::vector<json> cases = cases_of(GetParam());
  if (cases.empty()) GTEST_SKIP() << "not in the stored fixture";
  std::set<int64_t> kernels;
  for (const json& c : cases) {
    if (c["mode"] != "base") kernels.insert(c["kernel"].get<int64_t>());
  }
  for (const int64_t kernel : kernels) {
    MattingRefineOptions options{.backbone = GetParam(), .kernel_size = kernel};
    MattingRefine net(options);
    fill(net);
    for (const json& c : cases) {
      if (c["kernel"] != kernel) continue;
      SCOPED_TRACE(c["mode"].get<std::string>() + std::to_string(kernel));
      options.mode = refine_mode(c["mode"].get<std::string>());
      options.sample_pixels = c["sample_pixels"].get<int64_t>();
      options.threshold = c["threshold"].get<double>();
      net->set_options(options);
      expect_outputs(net, c);
      // This is the last case, as its step changes the running means.
      if (c.contains("gradients")) expect_gradients(net, c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backbones,
    MattingParityTest,
    testing::Values(
        MattingBackbone::mobilenet_v2,
        MattingBackbone::resnet50,
        MattingBackbone::resnet101),
    [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace tern::matting_parity_test
