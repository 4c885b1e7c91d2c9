#include "tern/learner/amp/keep_fp32.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/activation_checkpoint.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::keep_fp32_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;
namespace nn = torch::nn;

// first -> exp -> last, and the types of what comes out of each.
struct NetImpl final : nn::Module {
  NetImpl() {
    torch::manual_seed(1);
    first = register_module("first", nn::Linear(2, 8));
    last = register_module("last", nn::Linear(8, 2));
  }
  Tensor forward(const Tensor& x) {
    const Tensor a = first->forward(x), b = a.exp();
    Tensor c = last->forward(b);
    types = {a.scalar_type(), b.scalar_type(), c.scalar_type()};
    return c;
  }
  nn::Linear first{nullptr}, last{nullptr};
  std::vector<torch::ScalarType> types;
};
TORCH_MODULE(Net);

using Types = std::vector<torch::ScalarType>;
constexpr auto kFloat = torch::kFloat, kHalf = torch::kHalf;

MixedPrecisionOptions keep(std::vector<std::string> modules) {
  return {.force_fp16 = true, .keep_fp32 = std::move(modules)};
}

TEST(KeepFp32, AKeptLayerAndWhatFollowsItComputeInFp32UntilTheNextHalfLayer) {
  Net net;
  Learner learn(point_data(), net, quiet());
  learn.to_fp16(keep({"first"})).fit(1);
  EXPECT_EQ(net->types, (Types{kFloat, kFloat, kHalf}));
  EXPECT_EQ(net->first->weight.scalar_type(), kFloat);
  EXPECT_EQ(net->last->weight.scalar_type(), kHalf);
  EXPECT_EQ(
      master_weights(learn)->of(net->first->weight).unsafeGetTensorImpl(),
      net->first->weight.unsafeGetTensorImpl());

  learn.to_fp16(keep({"last"})).fit(1);
  EXPECT_EQ(net->types, (Types{kHalf, kHalf, kFloat}));
  learn.to_fp16(keep({})).fit(1);
  EXPECT_EQ(net->types, (Types{kHalf, kHalf, kHalf}));
}

TEST(KeepFp32, AllLayersAndTheInputsKeptAreFp32TrainingToTheBit) {
  const auto trained = [](bool halves) {
    Learner learn(point_data(), Net(), quiet());
    if (halves) learn.to_fp16(keep({"*", "input"}));
    learn.fit(2);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(trained(true), trained(false)));
}

TEST(KeepFp32, UnderAutocastAKeptLayerComputesInFp32) {
  Net net;
  Learner learn(point_data(), net, quiet());
  learn.to_amp({.keep_fp32 = {"first"}}).fit(1);
  EXPECT_EQ(net->types, (Types{kFloat, kFloat, torch::kBFloat16}));
  learn.to_amp({.keep_fp32 = {"la*"}}).fit(1);
  EXPECT_EQ(net->types[2], kFloat);
}

TEST(KeepFp32, AKeptParameterDecidesWhereverItStandsAmongTheArguments) {
  const Tensor kept = torch::ones({2, 2}), half = kept.to(kHalf);
  const KeptParameters parameters = {kept.unsafeGetTensorImpl()};
  const KeepFp32Guard guard(parameters);
  EXPECT_EQ(torch::addmm(kept, half, half).scalar_type(), kFloat);
  EXPECT_EQ(torch::addmm(half, half, kept).scalar_type(), kFloat);
  EXPECT_EQ(torch::addmm(half, half, half).scalar_type(), kHalf);
}

TEST(KeepFp32, EveryKindOfLayerTakesWhatTheLayerBeforeItGives) {
  struct Impl final : nn::Module {
    Impl() {
      torch::manual_seed(1);
      register_module("layers", layers);
      register_module("norm", norm);
      register_module("lstm", lstm);
      register_module("head", head);
    }
    Tensor forward(const Tensor& x) {
      Tensor y =
          layers->forward(x.reshape({-1, 1, 1, 2}).expand({-1, 1, 4, 2}));
      y = norm(y.flatten(2).transpose(1, 2));
      y = std::get<0>(lstm(y));
      return head(torch::matmul(y.transpose(1, 2), y).flatten(1));
    }
    nn::Sequential layers{
        nn::Conv2d(nn::Conv2dOptions(1, 4, 1)),
        nn::GroupNorm(2, 4),
        nn::BatchNorm2d(4),
        nn::PReLU(),
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 4, 1))};
    nn::LayerNorm norm{nn::LayerNormOptions({4})};
    nn::LSTM lstm{nn::LSTMOptions(4, 6).batch_first(true)};
    nn::Linear head{36, 2};
  };
  for (const char* kept :
       {"layers.0",
        "layers.1",
        "layers.2",
        "layers.3",
        "layers.4",
        "layers",
        "norm",
        "lstm",
        "head"}) {
    const auto net = std::make_shared<Impl>();
    Learner learn(point_data(64, 0), net, quiet());
    learn.to_fp16(keep({kept})).fit(1);
    for (const ModelTensor& p : learn.model().parameters()) {
      const bool stays = p.name.starts_with(std::string(kept) + ".") ||
                         p.layer == LayerKind::batch_norm;
      EXPECT_EQ(p.tensor.scalar_type(), stays ? kFloat : kHalf)
          << p.name << " with " << kept << " kept";
      EXPECT_TRUE(p.tensor.isfinite().all().item<bool>()) << p.name;
    }
  }
}

TEST(KeepFp32, IsTheSameWhenActivationsAreComputedAgain) {
  const auto trained = [](bool again) {
    torch::manual_seed(1);
    nn::Sequential net(nn::Linear(2, 8), nn::ReLU(), nn::Linear(8, 2));
    if (again) net = nn::Sequential(ActivationCheckpoint(net));
    Learner learn(point_data(64, 0), net, quiet());
    learn.to_fp16(keep({"*2"})).fit(1);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(trained(true), trained(false)));
}

TEST(KeepFp32, NamesTheModulesWhenNoneIsCalledSo) {
  Learner learn(point_data(), Net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.to_fp16(keep({"fist"})); },
      {"keep_fp32 names 'fist'", "first, last"});
  EXPECT_EQ(master_weights(learn), nullptr);
  learn.fit(1);
}

TEST(MixedPrecisionCallback, ConvertsTheModelWhenItIsAddedAndBackWhenRemoved) {
  const auto trained = [](bool as_callback) {
    LearnerOptions options = quiet();
    if (as_callback) {
      options.callbacks = {std::make_shared<MixedPrecision>(
          kHalf,
          MixedPrecisionOptions{.clip = 1.0})};
    }
    Learner learn(point_data(), point_net(), options);
    if (!as_callback) learn.to_fp16({.clip = 1.0, .force_fp16 = true});
    learn.fit(1);
    EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), kHalf);
    learn.remove(*learn.find<MixedPrecision>());
    EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), kFloat);
    EXPECT_EQ(master_weights(learn), nullptr);
    learn.fit(1);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(trained(true), trained(false)));
}

TEST(MixedPrecisionCallback, TakesPartInOneFitAlone) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1, {}, {std::make_shared<MixedPrecision>(kHalf)});
  EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), kFloat);
  learn.fit(1);
}

TEST(MixedPrecisionCallback, IsAddedByItsTypeToo) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<MixedPrecision>(kHalf).fit(1);
  EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), kHalf);
}

TEST(MixedPrecisionCallback, ToBf16TakesItsOptions) {
  Learner learn(
      point_data(32, 0),
      point_net(),
      quiet(
          {.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(1)),
           .lr = 1,
           .weight_decay = 0}));
  learn.to_bf16({.clip = 1e-3, .flat_master = true});
  const Tensors masters = master_weights(learn)->masters();
  Tensors before;
  for (const Tensor& master : masters) before.push_back(master.clone());
  learn.fit(1);
  EXPECT_TRUE(masters[0].is_alias_of(masters[1]));
  double moved = 0;
  for (size_t i = 0; i < masters.size(); ++i) {
    moved += (masters[i] - before[i]).square().sum().item<double>();
  }
  EXPECT_NEAR(std::sqrt(moved), 1e-3, 5e-5);  // one step
}

TEST(KeepFp32, IsRefusedOnSeveralDevicesOfAProcess) {
  Learner learn(point_data(), Net(), quiet());
  const std::vector<torch::Device> two = {torch::kCPU, torch::kCPU};
  const auto expect_refused = [](const std::function<void()>& call) {
    expect_error<c10::ValueError>(
        call,
        {"keep_fp32 names layers", "to_distributed"});
  };
  learn.to_fp16(keep({"first"}));
  expect_refused([&] { learn.to_parallel(two); });
  learn.to_parallel({torch::kCPU}).fit(1);  // one device
  learn.to_fp32().to_parallel(two);
  expect_refused([&] { learn.to_fp16(keep({"first"})); });
}

}  // namespace
}  // namespace tern::keep_fp32_test
