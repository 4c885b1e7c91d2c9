#include "tern/callbacks/precision/mixed_precision.h"

#include <cmath>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/tolerance.h"

namespace tern::mixed_precision_test {
namespace {

using namespace testing_support;  // NOLINT

// True fp16, which a CPU uses only with force_fp16.
MixedPrecisionOptions fp16(MixedPrecisionOptions options = {}) {
  options.force_fp16 = true;
  return options;
}

MixedPrecision& precision_of(const Learner& learn) {
  return *learn.find<MixedPrecision>();
}

double scale_of(Learner& learn) {
  return precision_of(learn).scaler().get_scale();
}

// Returns copies of the master weights, or of the parameters if there are none.
Tensors masters_of(Learner& learn) {
  Tensors all;
  for (const ModelTensor& p : learn.model().parameters()) {
    all.push_back(master_weights(learn)->of(p.tensor).detach().clone());
  }
  return all;
}

OptimizerFactory sgd(double momentum = 0.9) {
  return optimizer<optim::SGD>(
      torch::optim::SGDOptions(0.1).momentum(momentum));
}

TEST(MixedPrecision, ConvertsTheModelExceptBatchNormAndItsCounter) {
  const torch::nn::Sequential net(
      torch::nn::Linear(2, 4),
      torch::nn::BatchNorm1d(4),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})),
      torch::nn::Linear(4, 2));
  Learner learn(point_data(), net, quiet());
  learn.fit(1).to_fp16(fp16());
  for (const ModelTensor& p : learn.model().parameters()) {
    EXPECT_EQ(
        p.tensor.scalar_type(),
        p.name.starts_with("1.") ? torch::kFloat : torch::kHalf)
        << p.name;
    EXPECT_FALSE(p.tensor.grad().defined());
  }
  for (const ModelTensor& b : learn.model().buffers()) {
    EXPECT_EQ(
        b.tensor.scalar_type(),
        b.name == "1.num_batches_tracked" ? torch::kLong : torch::kFloat)
        << b.name;
  }
}

TEST(MixedPrecision, TrainsAsWellAsFp32) {
  double fp32 = 0;
  for (const int mode : {0, 1, 2}) {
    Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
    if (mode == 1) learn.to_fp16(fp16());
    if (mode == 2) learn.to_bf16();
    learn.fit(5, 1e-2);
    const EpochRecord& last = learn.recorder().epochs().back();
    if (mode == 0) fp32 = last.valid_loss;
    EXPECT_NEAR(last.valid_loss, fp32, 0.02);
    EXPECT_GT(last.metrics[0].value, 0.9);
  }
}

TEST(MixedPrecision, ToFp16OnACpuUsesBfloat16AndReportsIt) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.to_fp16();
  EXPECT_EQ(precision_of(learn).dtype(), torch::kBFloat16);
  ASSERT_EQ(sink->lines.size(), 1u);
  EXPECT_NE(sink->lines[0].find("bfloat16"), std::string::npos);
  learn.fit(1);
}

TEST(MixedPrecision, LossAndOutputsAreFp32AndTheRecordedLossIsUnscaled) {
  for (const double scale : {1.0, 512.0, 65536.0}) {
    Learner learn(point_data(64, 0), point_net(), quiet());
    learn.to_fp16(fp16({.loss_scale = scale}));
    learn.add<LambdaCallback>(
        {.on_backward_begin =
             [&](Learner& l) {
               EXPECT_EQ(l.state().outputs[0].scalar_type(), torch::kFloat);
               EXPECT_EQ(
                   l.state().batch_data.inputs[0].scalar_type(),
                   torch::kHalf);
               EXPECT_FLOAT_EQ(
                   l.state().loss_grad.item<float>(),
                   l.state().loss.item<float>() * scale);
             },
         .order = callback_order::kMixedPrecision + 1});
    learn.fit(1);
    EXPECT_LT(learn.recorder().losses().front(), 2);
  }
}

TEST(MixedPrecision, AnOverflowHalvesTheScaleAndChangesNothingElse) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(),
        sgd(),
        optimizer<torch::optim::Adam>(),
        optimizer<torch::optim::SGD>(
            torch::optim::SGDOptions(0.1).momentum(0.9))}) {
    Learner learn(
        point_data(64, 0),
        point_net(),
        quiet({.optimizer = factory, .weight_decay = 0.1}));
    learn.to_fp16(fp16({.init_scale = 1024})).fit(1);
    const Tensors before = masters_of(learn);
    const Tensors weights = parameters_of(learn);
    const int64_t now = learn.state().iteration;
    learn.fit(1, {}, {overflow_at({now, now + 1})});
    EXPECT_EQ(scale_of(learn), 256);
    EXPECT_TRUE(all_equal(masters_of(learn), before));
    EXPECT_TRUE(all_equal(parameters_of(learn), weights));
    learn.fit(1);
    EXPECT_FALSE(all_equal(masters_of(learn), before));
    for (const torch::Tensor& m : masters_of(learn)) {
      EXPECT_TRUE(m.isfinite().all().item<bool>());
    }
  }
}

TEST(MixedPrecision, AnOverflowInTheFirstStepsLeavesNoTrace) {
  const auto train = [](bool with_overflow) {
    Learner learn(
        point_data(256, 0),
        point_net(),
        quiet({.optimizer = sgd(), .weight_decay = 0}));
    learn.to_fp16(fp16({.loss_scale = 128}));
    // The control run skips the same two batches.
    Callbacks extra = {
        with_overflow ? overflow_at({0, 1})
                      : std::make_shared<LambdaCallback>(
                            LambdaCallbackOptions{.on_step = [](Learner& l) {
                              if (l.state().iteration < 2)
                                l.state().skip_step = true;
                            }})};
    learn.fit(1, {}, extra);
    return masters_of(learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(MixedPrecision, TheDynamicScaleGrowsAfterCleanStepsUpToItsLimit) {
  Learner learn(point_data(256, 0), point_net(), quiet());
  learn.to_fp16(fp16({.init_scale = 4, .growth_interval = 3, .max_scale = 16}));
  learn.fit(1);  // 8 clean steps: grows after 3 and 6
  EXPECT_EQ(scale_of(learn), 16);
  learn.fit(2);
  EXPECT_EQ(scale_of(learn), 16);
}

TEST(MixedPrecision, TheDynamicScaleDoesNotFallBelowOne) {
  Learner learn(point_data(256, 0), point_net(), quiet());
  learn.to_fp16(fp16({.init_scale = 2}));
  const Tensors before = masters_of(learn);
  learn.fit(1, {}, {overflow_at({0, 1, 2, 3, 4, 5, 6, 7})});
  EXPECT_EQ(scale_of(learn), 1);
  EXPECT_TRUE(all_equal(masters_of(learn), before));
}

TEST(MixedPrecision, AStaticScaleAlsoSkipsOverflowsAndStaysUnchanged) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  learn.to_fp16(fp16({.loss_scale = 512}));
  const Tensors before = masters_of(learn);
  learn.fit(1, {}, {overflow_at({0, 1})});
  EXPECT_EQ(scale_of(learn), 512);
  EXPECT_TRUE(all_equal(masters_of(learn), before));
}

TEST(MixedPrecision, SmallUpdatesAccumulateInTheMasterWeights) {
  // Ten updates of 1e-4 vanish in a half weight of 1 but accumulate in its
  // master weight.
  const torch::nn::Sequential net(
      torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
  {
    const torch::NoGradGuard no_grad;
    net->parameters()[0].fill_(1);
  }
  const auto ones = std::make_shared<TensorDataset>(
      Tensors{torch::ones({10, 1})},
      Tensors{torch::ones({10, 1})});
  DataBunch data =
      DataBunch::create(ones, nullptr, {.batch_size = 1, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(
      data,
      net,
      quiet(
          {.loss = Loss([](const torch::Tensor& p, const torch::Tensor&) {
             return p.sum();
           }),
           .optimizer = sgd(0),
           .weight_decay = 0}));
  learn.to_fp16(fp16({.loss_scale = 512})).fit(1, 1e-4);
  EXPECT_NEAR(masters_of(learn)[0].item<float>(), 0.999f, 1e-6f);
  EXPECT_EQ(
      net->parameters()[0].item<float>(),
      torch::tensor(0.999f).to(torch::kHalf).item<float>());
}

TEST(MixedPrecision, TwoFitsEqualOneLongFit) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(), optimizer<torch::optim::Adam>()}) {
    const auto train = [&](std::vector<int64_t> fits) {
      Learner learn(
          point_data(256, 0),
          point_net(),
          quiet({.optimizer = factory}));
      learn.to_fp16(fp16());
      for (const int64_t epochs : fits) learn.fit(epochs);
      return masters_of(learn);
    };
    EXPECT_TRUE(all_equal(train({3}), train({1, 2})));
  }
}

// Restores the parts a checkpoint must contain: master weights, buffers,
// optimizer and scale.
TEST(MixedPrecision, ContinuesBitIdenticallyFromItsSavedParts) {
  DataBunch data = point_data(256, 0);
  data.train = std::make_shared<DataLoader>(
      points(256),
      DataLoaderOptions{.batch_size = 32, .workers = 0});
  Learner whole(data, point_net(), quiet());
  whole.to_fp16(fp16()).add(overflow_at({1}));
  whole.fit(2);

  Learner first(data, point_net(), quiet());
  first.to_fp16(fp16()).add(overflow_at({1}));
  first.fit(1);
  std::stringstream optimizer;
  torch::save(first.optimizer(), optimizer);

  Learner second(data, point_net(/*seed=*/99), quiet());
  second.to_fp16(fp16());
  torch::load(second.optimizer(), optimizer);
  precision_of(second).load_state_dict(precision_of(first).state_dict());
  const Tensors masters = masters_of(first);
  const auto parameters = second.model().parameters();
  const auto buffers = second.model().buffers();
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      master_weights(second)->of(parameters[i].tensor).copy_(masters[i]);
    }
    master_weights(second)->copy_masters_to_weights();
    for (size_t i = 0; i < buffers.size(); ++i) {
      buffers[i].tensor.copy_(first.model().buffers()[i].tensor);
    }
  }
  EXPECT_EQ(scale_of(second), 32768);
  second.fit(1);
  EXPECT_TRUE(all_equal(masters_of(second), masters_of(whole)));
  EXPECT_EQ(scale_of(second), scale_of(whole));

  // An fp32 run can also continue from the same master weights.
  Learner fp32(data, point_net(/*seed=*/99), quiet());
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      fp32.model().parameters()[i].tensor.copy_(masters[i]);
    }
  }
  EXPECT_TRUE(all_equal(parameters_of(fp32), masters));
  fp32.fit(1);
}

TEST(MixedPrecision, MomentsMoveWithTheWeightsIntoHalfAndBack) {
  // Switching in the middle must change nothing, so the optimizer must keep its
  // moments.
  Learner plain(point_data(256, 0), point_net(), quiet());
  plain.fit(1).fit(1);
  Learner mixed(point_data(256, 0), point_net(), quiet());
  mixed.fit(1).to_fp16(fp16()).to_fp32().fit(1);
  EXPECT_TRUE(all_equal(parameters_of(mixed), parameters_of(plain)));
}

TEST(MixedPrecision, ToFp32RestoresTheMasterWeightsExactly) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_fp16(fp16()).fit(1);
  const Tensors masters = masters_of(learn);
  learn.to_fp32();
  EXPECT_TRUE(all_equal(parameters_of(learn), masters));
  EXPECT_EQ(master_weights(learn), nullptr);
  EXPECT_EQ(learn.find<MixedPrecision>(), nullptr);
}

TEST(MixedPrecision, BuffersAreConvertedToHalfAndBackByToFp32) {
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      offset = register_buffer("offset", torch::ones({2}));
      layer = register_module("layer", torch::nn::Linear(2, 2));
    }
    torch::Tensor forward(const torch::Tensor& x) { return layer(x + offset); }
    torch::Tensor offset;
    torch::nn::Linear layer{nullptr};
  };
  const auto net = std::make_shared<NetImpl>();
  Learner learn(point_data(), net, quiet());
  learn.to_fp16(fp16());
  EXPECT_EQ(net->offset.scalar_type(), torch::kHalf);
  learn.fit(1).to_fp32();
  EXPECT_EQ(net->offset.scalar_type(), torch::kFloat);
  learn.fit(1);
}

TEST(MixedPrecision, FlatMasterWeightsYieldTheSameWeights) {
  // The loss does not depend on one layer, which has no gradient.
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      torch::manual_seed(3);
      first = register_module("first", torch::nn::Linear(2, 8));
      unused = register_module("unused", torch::nn::Linear(4, 4));
      last = register_module("last", torch::nn::Linear(8, 2));
    }
    torch::Tensor forward(const torch::Tensor& x) {
      return last(first(x).relu());
    }
    torch::nn::Linear first{nullptr}, unused{nullptr}, last{nullptr};
  };
  for (const OptimizerFactory& factory :
       {OptimizerFactory(), optimizer<torch::optim::Adam>()}) {
    const auto train = [&](bool flat) {
      Learner learn(
          point_data(256, 0),
          std::make_shared<NetImpl>(),
          quiet({.optimizer = factory}));
      learn.to_fp16(fp16({.flat_master = flat}));
      const torch::Tensor unused = masters_of(learn)[2];
      learn.fit(2);
      EXPECT_TRUE(torch::equal(masters_of(learn)[2], unused));
      if (flat) {
        const Tensors& masters = master_weights(learn)->masters();
        for (const torch::Tensor& m : masters) {
          EXPECT_EQ(m.storage().data(), masters[0].storage().data());
        }
      }
      return masters_of(learn);
    };
    EXPECT_TRUE(all_equal(train(false), train(true)));
  }
}

TEST(MixedPrecision, GivesTheLossFp32OutputsUnlessDisabled) {
  for (const bool loss_fp32 : {true, false}) {
    torch::ScalarType seen{};
    Learner learn(
        point_data(),
        point_net(),
        quiet({.loss = Loss([&](torch::Tensor pred, torch::Tensor target) {
                 seen = pred.scalar_type();
                 return torch::nn::functional::cross_entropy(pred, target);
               })}));
    learn.to_bf16({.loss_fp32 = loss_fp32}).fit(1);
    EXPECT_EQ(seen, loss_fp32 ? torch::kFloat : torch::kBFloat16);
  }
}

TEST(MixedPrecision, ClipUsesTheNormOverAllGroups) {
  // Two groups whose gradients have norms 3 and 4: clipping at 1 multiplies
  // both by 0.2.
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      a = register_module(
          "a",
          torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
      b = register_module(
          "b",
          torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
    }
    torch::Tensor forward(const torch::Tensor& x) {
      return a(x) * 3 + b(x) * 4;
    }
    torch::nn::Linear a{nullptr}, b{nullptr};
  };
  for (const OptimizerFactory& factory :
       {sgd(0), optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1))}) {
    const auto one = std::make_shared<TensorDataset>(
        Tensors{torch::ones({1, 1})},
        Tensors{torch::ones({1, 1})});
    DataBunch data =
        DataBunch::create(one, nullptr, {.batch_size = 1, .workers = 0});
    data.device = torch::kCPU;
    Learner learn(
        data,
        std::make_shared<NetImpl>(),
        quiet(
            {.loss = Loss([](const torch::Tensor& p, const torch::Tensor&) {
               return p.sum();
             }),
             .optimizer = factory,
             .weight_decay = 0}));
    learn.split({"b"}).to_fp16(fp16({.loss_scale = 64, .clip = 1.0}));
    const Tensors before = masters_of(learn);
    learn.fit(1, 1.0);
    const Tensors after = masters_of(learn);
    EXPECT_NEAR((before[0] - after[0]).item<float>(), 0.6, 1e-5);
    EXPECT_NEAR((before[1] - after[1]).item<float>(), 0.8, 1e-5);
  }
}

TEST(MixedPrecision, ASkippedStepDoesNotDecayWeights) {
  Learner learn(point_data(64, 0), point_net(), quiet({.weight_decay = 0.5}));
  learn.to_fp16(fp16());
  const Tensors before = masters_of(learn);
  learn.fit(1, 0.1, {overflow_at({0, 1})});
  EXPECT_TRUE(all_equal(masters_of(learn), before));
}

TEST(MixedPrecision, ASkipRequestedByACallbackIsNotAnOverflow) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  learn.to_fp16(fp16({.init_scale = 4, .growth_interval = 1}));
  learn.add<LambdaCallback>(
      {.on_step = [](Learner& l) { l.state().skip_step = true; }});
  learn.fit(1);
  EXPECT_EQ(scale_of(learn), 4);
}

TEST(MixedPrecision, AnExceptionBetweenStepAndUpdateDoesNotAffectTheNextFit) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  learn.to_fp16(fp16());
  const auto thrower = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_step_end = [](Learner&) { throw std::runtime_error("no"); }});
  EXPECT_THROW(learn.fit(1, {}, {thrower}), std::runtime_error);
  learn.fit(1);
  EXPECT_EQ(learn.recorder().losses().size(), 2u);
}

TEST(MixedPrecision, TrainsWithoutMasterWeights) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  learn.to_bf16({.master_weights = false}).fit(5, 1e-2);
  EXPECT_GT(learn.validate()["accuracy"], 0.9);
  EXPECT_EQ(
      learn.model().parameters()[0].tensor.scalar_type(),
      torch::kBFloat16);
  const StateDict saved = learn.state_dict();
  learn.to_fp32();
  for (const ModelTensor& p : learn.model().parameters()) {
    EXPECT_TRUE(test::bit_equal(p.tensor, saved[p.name]));
  }
}

TEST(MixedPrecision, WithoutMasterWeightsCallbacksReadFp32Gradients) {
  const auto weights_after = [](bool asks) {
    Learner learn(point_data(), point_net(), quiet());
    learn.to_bf16({.master_weights = false});
    learn.add<LambdaCallback>({.on_backward_end = [&](Learner& l) {
      if (!asks) return;
      for (const NamedGradient& g : l.gradients()) {
        EXPECT_EQ(g.gradient.scalar_type(), torch::kFloat);
      }
    }});
    learn.fit(1, 1e-2);
    return learn.state_dict();
  };
  const StateDict expected = weights_after(false);
  for (const auto& entry : weights_after(true)) {
    EXPECT_TRUE(test::bit_equal(entry.value(), expected[entry.key()]));
  }
}

TEST(MixedPrecision, WithoutMasterWeightsRequiresBf16AndAFusedOptimizer) {
  expect_error<c10::ValueError>(
      [] { MixedPrecision(torch::kHalf, {.master_weights = false}); },
      {"fp16", "to_bf16"});
  Learner learn(
      point_data(),
      point_net(),
      quiet({.optimizer = optimizer<torch::optim::SGD>()}));
  learn.to_bf16({.master_weights = false});
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"expected an optimizer of tern::optim"});
}

TEST(MixedPrecision, PredictsWithTheHalfModel) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_fp16(fp16()).fit(5, 1e-2);
  EXPECT_EQ(learn.predict(torch::tensor({2.f, 2.f})).label, "above");
  EXPECT_EQ(learn.get_preds().preds.scalar_type(), torch::kFloat);
  // Clears only the half weights of the last layer, to show that the master
  // weights are not used.
  const torch::NoGradGuard no_grad;
  for (const ModelTensor& p : learn.model().parameters()) {
    if (!p.name.starts_with("3.")) continue;
    EXPECT_EQ(p.tensor.scalar_type(), torch::kHalf);
    p.tensor.detach().zero_();
  }
  EXPECT_TRUE(
      torch::equal(learn.get_preds().preds, torch::full({100, 2}, 0.5f)));
}

TEST(MixedPrecision, RejectsOptionsOutOfRange) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.to_fp16(fp16({.loss_scale = 0.0})); },
      {"loss_scale is 0"});
  expect_error<c10::ValueError>(
      [&] { learn.to_fp16(fp16({.clip = -1.0})); },
      {"clip is -1"});
  EXPECT_EQ(master_weights(learn), nullptr);
  learn.add<LambdaCallback>(
      {.on_epoch_begin = [](Learner& l) { l.to_bf16(); }});
  expect_error<c10::Error>([&] { learn.fit(1); }, {"while fit runs"});
}

TEST(MixedPrecision, KeptGradientsDoNotChangeWhenACallbackReadsThem) {
  // Gradients of 2e-9, which are zero in half when unscaled.
  const auto train = [](bool looks) {
    torch::nn::Sequential net(
        torch::nn::Linear(torch::nn::LinearOptions(2, 1).bias(false)));
    torch::nn::init::constant_(net->parameters()[0], 0.01);
    Learner learn(
        point_data(128, 0),
        net,
        quiet(
            {.loss = Loss([](const torch::Tensor& p, const torch::Tensor&) {
               return p.mean() * 1e-7;
             }),
             .optimizer = sgd(0),
             .weight_decay = 0}));
    learn.to_fp16(fp16());
    learn.add<LambdaCallback>({.on_backward_end = [looks](Learner& l) {
      TrainState& state = l.state();
      if (looks) l.gradients();
      state.skip_step = state.skip_zero_grad = state.batch % 2 == 0;
    }});
    learn.fit(2, 1e3);
    return masters_of(learn);
  };
  const Tensors seen = train(true);
  EXPECT_TRUE(all_equal(seen, train(false)));
  EXPECT_FALSE(torch::equal(seen[0], torch::full_like(seen[0], 0.01f)));
}

TEST(MixedPrecision, KeptGradientsOf16BitWeightsStayIn16BitsWhenRead) {
  const auto train = [](bool looks) {
    Learner learn(point_data(256, 0), point_net(), quiet());
    learn.to_bf16({.master_weights = false});
    learn.add<LambdaCallback>({.on_backward_end = [looks](Learner& l) {
      TrainState& state = l.state();
      if (looks) l.gradients();
      // The next batch adds to these gradients.
      state.skip_step = state.skip_zero_grad = state.batch % 2 == 0;
    }});
    torch::manual_seed(3);  // for stochastic rounding
    learn.fit(2, 1e-2);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

// One buffer that nothing writes, one that the forward pass writes, a double
// one, and one that fp16 cannot represent.
struct BuffersImpl : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
  torch::Tensor still = register_buffer("still", torch::full({2}, 0.1));
  torch::Tensor seen = register_buffer("seen", torch::full({2}, 0.1));
  torch::Tensor exact =
      register_buffer("exact", torch::full({1}, 0.1, torch::kDouble));
  torch::Tensor large = register_buffer("large", torch::full({1}, 100001.0));

  torch::Tensor forward(const torch::Tensor& x) {
    if (is_training()) {
      const torch::NoGradGuard no_grad;
      seen[0] += 0.5;
    }
    return layer(x + still.to(x.scalar_type()));
  }
};
TORCH_MODULE(Buffers);

TEST(MixedPrecision, BuffersAreRestoredExactlyExceptForValuesTheModelWrote) {
  for (const bool is_half : {true, false}) {
    SCOPED_TRACE(is_half);
    Buffers net;
    const auto before = Model(net).state_dict();
    StateDict exact;
    for (const auto& item : before) {
      exact.insert(item.key(), item.value().clone());
    }
    Learner learn(point_data(96, 0), net, quiet());
    is_half ? learn.to_fp16(fp16()) : learn.to_bf16();
    const auto expect_exact = [&](const StateDict& state) {
      for (const char* name : {"still", "exact", "large"}) {
        EXPECT_EQ(state[name].scalar_type(), exact[name].scalar_type());
        EXPECT_TRUE(torch::equal(state[name], exact[name])) << name;
      }
    };
    EXPECT_EQ(
        net->seen.scalar_type(),
        is_half ? torch::kHalf : torch::kBFloat16);
    expect_exact(learn.state_dict());
    learn.fit(1);
    const float written = net->seen[0].item<float>();
    EXPECT_NEAR(written, 1.6, 0.02);
    const StateDict trained = learn.state_dict();
    expect_exact(trained);
    EXPECT_EQ(trained["seen"][0].item<float>(), written);
    EXPECT_EQ(trained["seen"][1].item<float>(), 0.1f);

    // Loads the state into another 16-bit model, and then leaves 16 bits.
    Learner other(point_data(96, 0), Buffers(), quiet());
    other.to_bf16().load_state_dict(trained);
    EXPECT_EQ(other.state_dict()["seen"][0].item<float>(), written);
    expect_exact(other.state_dict());
    learn.to_fp32();
    expect_exact(Model(net).state_dict());
    EXPECT_EQ(net->seen[0].item<float>(), written);
    EXPECT_EQ(net->seen[1].item<float>(), 0.1f);
  }
}

// The saved state must not depend on earlier reads: a checkpoint also reads it.
TEST(MixedPrecision, SavesTheSameBuffersWhetherOrNotTheyWereReadBefore) {
  const auto train = [](bool looks) {
    Buffers net;
    Learner learn(point_data(96, 0), net, quiet());
    learn.to_fp16(fp16());
    learn.add<LambdaCallback>(
        {.on_batch_end =
             [=](Learner& l) mutable {
               if (looks) l.state_dict();
               // Writes 0.1 as rounded to half, which differs from the original
               // 0.1.
               const torch::NoGradGuard no_grad;
               if (l.state().batch == 2) net->seen.fill_(0.1);
             },
         .order = callback_order::kFirst});
    learn.fit(2);
    return learn.state_dict()["seen"].clone();
  };
  EXPECT_TRUE(torch::equal(train(true), train(false)));
}

}  // namespace
}  // namespace tern::mixed_precision_test
