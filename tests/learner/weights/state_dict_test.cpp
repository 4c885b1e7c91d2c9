#include "tern/learner/state_dict.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/amp/master_weights.h"
#include "tern/learner/model.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/state_dicts.h"
#include "tern/tests/support/tiny.h"

namespace tern::state_dict_test {
namespace {

using test::same_state;
using test::without;
using testing_support::point_net;

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& item : state) {
    copy.insert(item.key(), item.value().clone());
  }
  return copy;
}

StateDict with_prefix(const StateDict& state, const std::string& prefix) {
  StateDict renamed;
  for (const auto& item : state) {
    renamed.insert(prefix + item.key(), item.value());
  }
  return renamed;
}

// One weight with two names, as of an embedding and a tied output layer.
struct Tied : torch::nn::Module {
  Tied() : weight(register_parameter("weight", torch::rand({2, 2}))) {
    register_parameter("again", weight);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x.mm(weight); }
  torch::Tensor weight;
};

TEST(StateDict, ListsModuleByModuleParametersThenBuffers) {
  const Model model = point_net();
  EXPECT_EQ(
      model.state_dict().keys(),
      (std::vector<std::string>{
          "0.weight",
          "0.bias",
          "1.weight",
          "1.bias",
          "1.running_mean",
          "1.running_var",
          "1.num_batches_tracked",
          "3.weight",
          "3.bias"}));
}

TEST(StateDict, SharesMemoryWithTheModelAndHasNoGradients) {
  const Model model = point_net();
  const StateDict state = model.state_dict();
  EXPECT_FALSE(state["0.weight"].requires_grad());
  state["0.weight"].fill_(3);
  EXPECT_EQ(model.parameters()[0].tensor.sum().item<float>(), 3 * 32);
}

TEST(StateDict, LoadsIntoADifferentModelAndReportsCompleteness) {
  Model from = point_net(1), to = point_net(2);
  const LoadReport report = to.load_state_dict(from.state_dict());
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.to_string(), "9 loaded");
  EXPECT_TRUE(same_state(to.state_dict(), from.state_dict()));
  EXPECT_TRUE(to.parameters()[0].tensor.requires_grad());
}

TEST(StateDict, ListsDifferencesAndLeavesTheModelUnchanged) {
  Model model = point_net(1);
  const StateDict before = copy_of(model.state_dict());
  StateDict wrong =
      without(copy_of(Model(point_net(2)).state_dict()), {"3.bias"});
  wrong.insert("4.scale", torch::ones({1}));
  wrong["0.weight"] = torch::ones({5, 2});
  expect_error<c10::ValueError>(
      [&] { model.load_state_dict(wrong); },
      {"[Model::load_state_dict]",
       "1 missing ('3.bias')",
       "1 unexpected ('4.scale')",
       "1 with mismatched sizes ('0.weight' is [5, 2] Float; expected [16, 2] "
       "Float)",
       "Nothing was loaded",
       "{.strict = false}",
       "{.ignore_mismatched_sizes = true}"});
  EXPECT_TRUE(same_state(model.state_dict(), before));
  // Without strict, shapes must still match, as in Python.
  expect_error<c10::ValueError>(
      [&] { model.load_state_dict(wrong, {.strict = false}); },
      {"with mismatched sizes"});
  EXPECT_TRUE(same_state(model.state_dict(), before));
}

TEST(StateDict, NamesOnlyTheFirstOfManyMissingTensors) {
  Model model = point_net();
  StateDict few;
  few.insert("0.bias", torch::zeros({16}));
  const LoadReport report = model.load_state_dict(few, {.strict = false});
  EXPECT_EQ(report.missing.size(), 7u);  // without num_batches_tracked
  EXPECT_EQ(
      report.to_string(),
      "1 loaded, 7 missing ('0.weight', '1.weight', '1.bias', "
      "'1.running_mean', '1.running_var', ...)");
}

TEST(StateDict, LoadsTheBodyIfTheHeadDiffers) {
  const auto net = [](int64_t classes) {
    return torch::nn::Sequential(
        torch::nn::Linear(4, 8),
        torch::nn::Linear(8, classes));
  };
  Model from = net(1000), to = net(10);
  const StateDict before = copy_of(to.state_dict());
  const LoadReport report =
      to.load_state_dict(from.state_dict(), {.ignore_mismatched_sizes = true});
  EXPECT_EQ(report.loaded, 2);
  ASSERT_EQ(report.mismatched.size(), 2u);
  EXPECT_EQ(report.mismatched[0].name, "1.weight");
  EXPECT_EQ(report.mismatched[0].given, "[1000, 8] Float");
  EXPECT_EQ(report.mismatched[0].expected, "[10, 8] Float");
  EXPECT_EQ(report.mismatched[1].name, "1.bias");
  const StateDict after = to.state_dict();
  EXPECT_TRUE(torch::equal(after["0.weight"], from.state_dict()["0.weight"]));
  EXPECT_TRUE(torch::equal(after["1.weight"], before["1.weight"]));
}

TEST(StateDict, RemovesThePrefixesOfPyTorchsWrappersAndAGivenPrefix) {
  const StateDict state = copy_of(Model(point_net(2)).state_dict());
  for (const char* prefix :
       {"module.",
        "_orig_mod.",
        "module._orig_mod.",
        "_orig_mod.module.",
        "_orig_mod.module._orig_mod."}) {
    Model model = point_net(1);
    EXPECT_TRUE(
        model.load_state_dict(with_prefix(state, prefix)).is_complete());
    EXPECT_TRUE(same_state(model.state_dict(), state));
  }
  Model model = point_net(1);
  StateDict larger = with_prefix(state, "backbone.");
  larger.insert("head.weight", torch::ones({1}));
  EXPECT_THROW(model.load_state_dict(larger), c10::ValueError);
  const LoadReport report =
      model.load_state_dict(larger, {.prefix = "backbone."});
  EXPECT_TRUE(report.is_complete()) << report.to_string();
  EXPECT_TRUE(same_state(model.state_dict(), state));
}

TEST(StateDict, RejectsADictWithoutAnyTensorOfTheModel) {
  Model model = point_net();
  StateDict other;
  other.insert("encoder.weight", torch::ones({2}));
  expect_error<c10::ValueError>(
      [&] { model.load_state_dict(other, {.strict = false}); },
      {"0 loaded", "'encoder.weight'", "prefix"});
}

TEST(StateDict, ConvertsFloatingPointDtypesButNotFloatsToIntegers) {
  Model model = point_net();
  StateDict state = copy_of(model.state_dict());
  state["0.weight"] = state["0.weight"].to(torch::kBFloat16);
  state["0.bias"] = state["0.bias"].to(torch::kDouble);
  state["1.num_batches_tracked"] = torch::tensor(5, torch::kInt);
  EXPECT_TRUE(model.load_state_dict(state).is_complete());
  const StateDict after = model.state_dict();
  EXPECT_EQ(after["0.weight"].scalar_type(), torch::kFloat);
  EXPECT_EQ(after["1.num_batches_tracked"].item<int64_t>(), 5);

  state["1.num_batches_tracked"] = torch::tensor(5.5);
  expect_error<c10::ValueError>(
      [&] { model.load_state_dict(state); },
      {"'1.num_batches_tracked' is [] Float; expected [] Long"});
  state["1.num_batches_tracked"] = torch::Tensor();
  expect_error<c10::ValueError>(
      [&] { model.load_state_dict(state); },
      {"an undefined tensor"});
}

TEST(StateDict, LoadsIntoAModelInHalfPrecision) {
  Model model = point_net(1);
  const MasterWeights masters(model, torch::kBFloat16);
  const StateDict state = copy_of(Model(point_net(2)).state_dict());
  model.load_state_dict(state);
  const StateDict after = model.state_dict();
  EXPECT_EQ(after["0.weight"].scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(
      torch::equal(after["0.weight"], state["0.weight"].to(torch::kBFloat16)));
}

TEST(StateDict, AcceptsOldFilesWithoutTheBatchCount) {
  Model model = point_net(1);
  const StateDict old = without(
      copy_of(Model(point_net(2)).state_dict()),
      {"1.num_batches_tracked"});
  EXPECT_TRUE(model.load_state_dict(old).is_complete());
}

TEST(StateDict, ContainsATiedTensorUnderEachNameAndLoadsItFromAny) {
  Model model = std::make_shared<Tied>();
  const StateDict state = model.state_dict();
  EXPECT_EQ(state.keys(), (std::vector<std::string>{"weight", "again"}));
  EXPECT_EQ(state["weight"].data_ptr(), state["again"].data_ptr());
  EXPECT_EQ(model.parameters().size(), 1u);

  StateDict once;
  once.insert("again", torch::ones({2, 2}));
  EXPECT_TRUE(model.load_state_dict(once).is_complete());
  EXPECT_EQ(state["weight"].sum().item<float>(), 4);
}

TEST(StateDict, EscapesControlCharactersInTensorNames) {
  Model model = point_net();
  StateDict state = copy_of(model.state_dict());
  state.insert("a\x1b[2Jb", torch::ones({1}));
  const std::string error =
      error_of<c10::ValueError>([&] { model.load_state_dict(state); });
  EXPECT_NE(error.find("\\x1b"), std::string::npos);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace tern::state_dict_test
