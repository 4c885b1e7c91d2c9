#include "tern/learner/forward_error.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::forward_error_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;
namespace nn = torch::nn;

// body.a -> `between` applied to its output -> body.b
struct BodyImpl final : nn::Module {
  using Function = std::function<Tensor(const Tensor&)>;
  explicit BodyImpl(Function function) : between(std::move(function)) {
    register_module("a", a);
    register_module("b", b);
  }
  Tensor forward(const Tensor& x) { return b(between(a(x))); }
  Function between;
  nn::Linear a{2, 8}, b{8, 2};
};
TORCH_MODULE(Body);

struct NetImpl final : nn::Module {
  explicit NetImpl(BodyImpl::Function between)
      : body(register_module("body", Body(std::move(between)))) {}
  Tensor forward(const Tensor& x) { return body(x); }
  Body body{nullptr};
};
TORCH_MODULE(Net);

std::string error_of(Model model, const Tensor& x) {
  try {
    model.forward({x});
  } catch (const c10::ValueError& error) {
    return message_of(error);
  }
  return "";
}

std::string error_between(BodyImpl::Function between) {
  return error_of(Net(std::move(between)), torch::zeros({4, 2}));
}

TEST(ForwardError, NamesTheLayerItsInputAndThePreviousLayer) {
  EXPECT_EQ(
      error_between([](const Tensor& x) { return x.slice(1, 0, 6); }),
      "[Model] the model cannot take inputs of [4, 2] Float; body.b received "
      "[4, 6] Float, and its weight is [2, 8] Float: mat1 and mat2 shapes "
      "cannot be multiplied (4x6 and 8x2). Make it match body.a, the layer "
      "before it, which returns [4, 8] Float.");
}

TEST(ForwardError, ComparesTheSamplesWithTheFirstLayer) {
  const std::string text = error_of(
      nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 64, 3))),
      torch::zeros({4, 3, 32, 32}));
  EXPECT_EQ(
      text,
      "[Model] the model cannot take inputs of [4, 3, 32, 32] Float; 0 "
      "received [4, 3, 32, 32] Float, and its weight is [64, 1, 3, 3] Float: "
      "Given groups=1, weight of size [64, 1, 3, 3], expected input[4, 3, 32, "
      "32] to have 1 channels, but got 3 channels instead. Make the samples "
      "match the model's first layer.");
}

TEST(ForwardError, NamesTheLayerBeforeAFailingOperationWithoutWeights) {
  const std::string text = error_between([](const Tensor& x) {
    return x + torch::zeros({4, 3});
  });
  EXPECT_NE(
      text.find("; behind body.a, add received [4, 8] Float, [4, 3] Float: "),
      text.npos)
      << text;
  EXPECT_TRUE(
      text.ends_with("Change what the model's forward does after body.a."))
      << text;
  EXPECT_EQ(text.find("samples"), text.npos) << text;
  // A module's own check fails between two operations.
  const std::string check = error_of(
      nn::Sequential(nn::Linear(2, 8), nn::BatchNorm2d(8)),
      torch::zeros({4, 2}));
  EXPECT_NE(check.find("behind 0, with [4, 8] Float: "), check.npos) << check;
}

TEST(ForwardError, ExplainsWhatToConvert) {
  std::string text =
      error_between([](const Tensor& x) { return x.to(torch::kDouble); });
  EXPECT_TRUE(
      text.ends_with("Convert its input to Float in the model's forward "
                     "(x.to(weight.dtype()))."))
      << text;
  const auto same = [](const Tensor& x) { return x; };
  text = error_of(Net(same), torch::zeros({4, 2}, torch::kByte));
  EXPECT_NE(text.find("body.a received [4, 2] Byte"), text.npos) << text;
  EXPECT_NE(text.find("Give the model samples of Float"), text.npos) << text;
  text = error_between([](const Tensor& x) {
    return torch::mm(x, torch::zeros({8, 8}, torch::kDouble));
  });
  EXPECT_TRUE(text.ends_with(
      "Convert one of them to the dtype of the other (y.to(x.dtype()))."))
      << text;
}

TEST(ForwardError, ExplainsInvalidEmbeddingIndices) {
  const nn::Sequential net(nn::Embedding(10, 4));
  EXPECT_TRUE(error_of(net, torch::full({2}, 10))
                  .ends_with("Give indices from 0 to 9."));
  EXPECT_TRUE(error_of(net, torch::zeros({2}))
                  .ends_with("Give it integers: indices of kLong or kInt."));
}

TEST(ForwardError, NamesAnOperationThatHasNo16BitVersion) {
  Learner learn(
      point_data(64, 0),
      Net([](const Tensor& x) { return torch::linalg_inv(x.slice(0, 0, 8)); }),
      quiet());
  learn.to_bf16();
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"behind body.a, ",
       "BFloat16",
       "This operation has no 16-bit version: name its module in keep_fp32, "
       "or train with to_amp."});
}

TEST(ForwardError, GivesNoAdviceThatWouldNotHelp) {
  const std::string text = error_between([](const Tensor& x) {
    TORCH_CHECK(false, "the moon is full");
    return x;
  });
  EXPECT_TRUE(
      text.ends_with("behind body.a, with [4, 8] Float: the moon is full."))
      << text;
}

TEST(ForwardError, NamesALayerWithAnAdapter) {
  const std::string text = error_of(
      add_lora(
          Net([](const Tensor& x) { return x.slice(1, 0, 6); }),
          {.rank = 2}),
      torch::zeros({4, 2}));
  EXPECT_NE(text.find("body.b received [4, 6] Float, and its"), text.npos)
      << text;
  EXPECT_NE(text.find("match body.a"), text.npos) << text;
}

TEST(ForwardError, TheRepeatedForwardPassLeavesNoTrace) {
  const auto make = [] {
    torch::manual_seed(1);
    return nn::Sequential(
        nn::Linear(2, 8),
        nn::BatchNorm1d(8),
        nn::Dropout(0.5),
        nn::Linear(6, 2));
  };
  const Tensor x = torch::randn({4, 2});
  nn::Sequential once = make();
  EXPECT_THROW(once->forward(x), c10::Error);
  const Tensor random = torch::randn({2});
  nn::Sequential net = make();
  EXPECT_NE(error_of(net, x), "");
  EXPECT_TRUE(torch::equal(torch::randn({2}), random));
  const auto before = once->buffers(), after = net->buffers();
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(torch::equal(after[i], before[i]));
  }
  EXPECT_FALSE(is_forward_repeated());
}

TEST(ForwardError, ReportsTheInputsIfTheRepeatedPassDoesNotFail) {
  int calls = 0;
  const std::string text = error_between([&](const Tensor& x) {
    TORCH_CHECK(calls++ > 0, "the moon is full");
    return x;
  });
  EXPECT_EQ(
      text,
      "[Model] the model cannot take inputs of [4, 2] Float; the moon is "
      "full.");
}

}  // namespace
}  // namespace tern::forward_error_test
