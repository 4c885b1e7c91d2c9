#include "tern/learner/model.h"

#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>
#include <torch/types.h>

#include "tern/learner/eval_mode.h"
#include "tern/learner/module_names.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::model_test {
namespace {

struct TwoInputsImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& a,
      const torch::Tensor& b) {
    return {a + b, a - b};
  }
};

struct ListImpl : torch::nn::Module {
  Tensors forward(const Tensors& inputs) { return inputs; }
};
TORCH_MODULE(List);

TEST(Model, AcceptsAnyModuleAndReturnsTensors) {
  const torch::Tensor x = torch::randn({3, 2});
  Model sequential = torch::nn::Sequential(torch::nn::Linear(2, 4));
  EXPECT_EQ(sequential.forward({x}).at(0).size(1), 4);
  Model linear = torch::nn::Linear(2, 5);
  EXPECT_EQ(linear.forward({x}).at(0).size(1), 5);
  Model pair = std::make_shared<TwoInputsImpl>();
  const Tensors outputs = pair.forward({x, x});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_TRUE(torch::equal(outputs[1], torch::zeros({3, 2})));
  Model list = List();
  EXPECT_EQ(list.forward({x, x, x, x, x}).size(), 5u);
}

TEST(Model, ReportsThatNoForwardTakesThatManyInputs) {
  Model pair = std::make_shared<TwoInputsImpl>();
  expect_error<c10::ValueError>(
      [&] { pair.forward({torch::ones({1})}); },
      {"1 inputs", "forward"});
  EXPECT_THROW(Model(std::shared_ptr<TwoInputsImpl>()), c10::ValueError);
}

TEST(Model, NamesItsTensorsAndTheirLayers) {
  const Model model = testing_support::point_net();
  const auto parameters = model.parameters();
  std::vector<std::string> names;
  for (const ModelTensor& p : parameters) names.push_back(p.name);
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "0.weight",
          "0.bias",
          "1.weight",
          "1.bias",
          "3.weight",
          "3.bias"}));
  EXPECT_EQ(parameters[2].layer, LayerKind::batch_norm);
  EXPECT_EQ(parameters[4].layer, LayerKind::other);
  EXPECT_TRUE(parameters[1].is_bias());
  EXPECT_FALSE(parameters[0].is_bias());
  EXPECT_EQ(model.buffers().size(), 3u);
}

TEST(Model, CountsSharedParametersOnce) {
  const torch::nn::Linear shared(2, 2);
  const Model model = torch::nn::Sequential(shared, torch::nn::ReLU(), shared);
  EXPECT_EQ(model.parameters().size(), 2u);
}

TEST(EvalModeGuard, RestoresTheModeEvenAfterAnError) {
  Model model = testing_support::point_net();
  for (const bool was_training : {true, false}) {
    model.train(was_training);
    try {
      const EvalModeGuard eval(model);
      EXPECT_FALSE(model.is_training());
      throw std::runtime_error("a forward that fails");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(model.is_training(), was_training);
  }
}

TEST(ModuleNames, OmitNamespaces) {
  EXPECT_EQ(unqualified_name("Net"), "Net");
  EXPECT_EQ(unqualified_name("tern::(anonymous namespace)::Net"), "Net");
  EXPECT_EQ(unqualified_name("f(a::B)::Net"), "Net");
  EXPECT_EQ(unqualified_name("a::Net<b::C<d::E>, 3>"), "Net<b::C<d::E>, 3>");
  EXPECT_EQ(unqualified_name("a::f<int>()::Net"), "Net");
}

TEST(ModuleNames, MatchPythonForModulesOfLibTorch) {
  EXPECT_EQ(module_class_name(torch::nn::Linear(2, 2)->name()), "Linear");
  EXPECT_EQ(module_class_name(ListImpl().name()), "List");
}

TEST(ModuleNames, TellWhetherATensorIsInAModule) {
  EXPECT_TRUE(is_in_module("layer1.0.weight", "layer1"));
  EXPECT_TRUE(is_in_module("layer1.0.weight", "layer1.0"));
  EXPECT_TRUE(is_in_module("layer1", "layer1"));
  EXPECT_FALSE(is_in_module("layer10.weight", "layer1"));
  EXPECT_FALSE(is_in_module("layer1", "layer1.0"));
}

TEST(Model, AcceptsATorchScriptModule) {
  torch::jit::Module module("net");
  module.register_parameter("weight", torch::full({2}, 3.f), false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x):\n  return self.weight * x\n");
  Model model = module;
  EXPECT_EQ(model.parameters().at(0).name, "weight");
  EXPECT_TRUE(torch::equal(
      model.forward({torch::ones({2})}).at(0),
      torch::full({2}, 3.f)));
  model.train(false);
  EXPECT_FALSE(model.is_training());
}

}  // namespace
}  // namespace tern::model_test
