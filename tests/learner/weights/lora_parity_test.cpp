#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::lora_parity_test {
namespace {

namespace nn = torch::nn;

// Written by lora_fixture.py.
const nlohmann::json& fixture() {
  static const auto json = nlohmann::json::parse(
      std::ifstream(in_tests_folder("learner/weights/lora_fixture.json")));
  return json;
}

torch::Tensor read(const nlohmann::json& stored) {
  return torch::tensor(
             stored["values"].get<std::vector<double>>(),
             torch::kDouble)
      .view(stored["shape"].get<std::vector<int64_t>>());
}

StateDict read_all(const nlohmann::json& stored) {
  StateDict all;
  for (const auto& item : stored.items()) {
    all.insert(item.key(), read(item.value()));
  }
  return all;
}

// Self-attention over a sequence of tokens.
struct AttentiveImpl : nn::Module {
  AttentiveImpl() { register_module("attention", attention); }
  torch::Tensor forward(const torch::Tensor& x) {
    return std::get<0>(attention->forward(x, x, x));
  }
  nn::MultiheadAttention attention{12, 3};
};
TORCH_MODULE(Attentive);

class LoraParity : public testing::TestWithParam<torch::Dtype> {
 protected:
  void expect_near(const torch::Tensor& ours, const nlohmann::json& stored) {
    const torch::Tensor theirs = read(stored);
    ASSERT_EQ(ours.scalar_type(), GetParam());
    ASSERT_EQ(ours.sizes(), theirs.sizes());
    const double error =
        (ours.to(torch::kDouble) - theirs).abs().max().item<double>();
    const double scale = theirs.abs().max().item<double>();
    EXPECT_LE(error, (GetParam() == torch::kFloat ? 1e-6 : 1e-13) * scale);
  }

  // Compares outputs, gradients and merged weights of a module.
  template <typename Module>
  void expect_parity(const std::string& name, Module net) {
    SCOPED_TRACE(name);
    const nlohmann::json& python = fixture()["cases"][name];
    net->to(GetParam());
    Model plain(net);
    plain.load_state_dict(read_all(python["weights"]));
    Model model = add_lora(
        plain,
        {.rank = fixture()["rank"],
         .alpha = fixture()["alpha"],
         .targets = {python["target"].get<std::string>()}});
    model.load_state_dict(read_all(python["adapters"]));
    ASSERT_EQ(model.parameters().size(), python["adapters"].size());

    const torch::Tensor x = read(python["input"]).to(GetParam());
    const torch::Tensor output = model.forward({x})[0];
    expect_near(output, python["output"]);
    output.square().sum().backward();
    for (const ModelTensor& item : model.parameters()) {
      if (!python["gradients"].contains(item.name)) continue;
      SCOPED_TRACE(item.name);
      expect_near(item.tensor.grad(), python["gradients"][item.name]);
    }
    const StateDict merged = merge_lora(model).state_dict();
    for (const auto& item : python["merged"].items()) {
      SCOPED_TRACE(item.key());
      expect_near(merged[item.key()], item.value());
    }
    expect_near(net->forward(x), python["output"]);
  }
};

TEST_P(LoraParity, MatchesPeftForLinearLayers) {
  expect_parity("linear", nn::Sequential(nn::Linear(6, 5)));
}

TEST_P(LoraParity, MatchesPeftForConvolutions) {
  expect_parity(
      "conv",
      nn::Sequential(
          nn::Conv2d(nn::Conv2dOptions(3, 5, 3).stride(2).padding(1))));
  expect_parity("pointwise", nn::Sequential(nn::Conv2d(6, 4, 1)));
}

TEST_P(LoraParity, MatchesPeftForAttention) {
  expect_parity("attention", Attentive());
}

// PEFT's adapter reads all channels in each group, which no grouped weight can.
TEST_P(LoraParity, RejectsPeftsAdapterOfAGroupedConvolution) {
  Model model = add_lora(
      nn::Sequential(nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(2))),
      {.rank = fixture()["rank"]});
  StateDict state;
  for (const auto& item : fixture()["grouped"].items()) {
    state.insert(
        item.key(),
        torch::zeros(item.value().get<std::vector<int64_t>>(), GetParam()));
  }
  expect_error<c10::ValueError>(
      [&] { model.load_state_dict(state); },
      {"0.lora_A.weight", "[2, 4, 3, 3]", "[2, 2, 3, 3]"});
}

INSTANTIATE_TEST_SUITE_P(
    ,
    LoraParity,
    testing::Values(torch::kFloat, torch::kDouble));

}  // namespace
}  // namespace tern::lora_parity_test
