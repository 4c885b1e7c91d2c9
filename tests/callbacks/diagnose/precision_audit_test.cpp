#include "tern/callbacks/diagnose/precision_audit.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/data/stream_dataset.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/callbacks/diagnose/audited.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/one_pass_stream.h"
#include "tern/tests/support/precision_net.h"
#include "tern/tests/support/tiny.h"

namespace tern::precision_audit_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;
namespace nn = torch::nn;

// Returns the training losses of two epochs.
std::vector<double> losses_of(
    const Model& model,
    DataBunch data,
    const LearnerOptions& options,
    const std::function<void(Learner&)>& set_up) {
  Learner learn(std::move(data), model, options);
  set_up(learn);
  learn.fit(2);
  return learn.recorder().losses();
}

double largest_difference(
    const std::vector<double>& a,
    const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

// Expects the audit to blame a module. With the keep_fp32 list it returns,
// training in true fp16 must follow fp32; without the list, it must not.
void expect_cured(
    const std::string& name,
    const std::function<Model()>& make,
    double scale = 1,
    double lr = 1e-2) {
  SCOPED_TRACE(name);
  Learner learn(some_data(scale), make(), options_with({}, lr));
  const Tensors before = parameters_of(learn);
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  SCOPED_TRACE(audit.to_string());
  EXPECT_FALSE(audit.fp16.keep_fp32.empty());
  EXPECT_TRUE(audit.fp16.is_sound);
  const auto trained = [&](bool in_half, std::vector<std::string> kept) {
    return losses_of(
        make(),
        some_data(scale),
        options_with({}, lr),
        [&](Learner& l) {
          if (!in_half) return;
          l.to_fp16(
              {.loss_scale = audit.fp16.loss_scale,
               .force_fp16 = true,
               .keep_fp32 = std::move(kept)});
        });
  };
  const auto plain = trained(false, {});
  EXPECT_LT(
      largest_difference(trained(true, audit.fp16.keep_fp32), plain),
      0.02);
  double without = INFINITY;
  try {
    without = largest_difference(trained(true, {}), plain);
  } catch (const std::runtime_error& error) {  // a constant overflows half
    EXPECT_NE(std::string(error.what()).find("overflow"), std::string::npos);
  }
  EXPECT_GT(without, 0.04);
}

TEST(PrecisionAudit, FindsOverflowsInHalfThatItsListFixes) {
  expect_cured("activations beyond 65504", net([](const Tensor& x) {
                 return (x * 1e5).relu() * 1e-5;
               }));
  expect_cured("a sum of squares", net([](const Tensor& x) {
                 return x / (x * 300).pow(2).sum(1, true).sqrt() * 300;
               }));
  expect_cured("an exp", net([](const Tensor& x) {
                 return (x + 12).exp() * 1e-5;
               }));
  expect_cured(
      "a variance over a long axis",
      net([](const Tensor& x) {
        const Tensor y = x.repeat({1, 64}) * 100 + 200;
        const Tensor mean = y.mean(1, true);
        return (x * 100 + 200 - mean) /
               (y.square().sum(1, true) / 1024. - mean.square() + 1).sqrt();
      }));
  expect_cured("a cumulative sum", net([](const Tensor& x) {
                 return (x.repeat({1, 256}).abs() * 50)
                            .cumsum(1)
                            .narrow(1, 4000, kWidth) *
                        1e-5;
               }));
  expect_cured("a division by little", net([](const Tensor& x) {
                 return (x.relu().square() + 1e-6).reciprocal() * 1e-6;
               }));
  expect_cured(
      "a product of activations",
      net(
          [](const Tensor& x) {
            const Tensor y = (x * 100).unsqueeze(2);
            return torch::matmul(y, y.transpose(1, 2)).mean(2) * 1e-4;
          },
          4));
  expect_cured("a power", net([](const Tensor& x) {
                 return (x * 4).pow(8) * 1e-6;
               }));
}

TEST(PrecisionAudit, FindsPrecisionLossInHalfThatItsListFixes) {
  expect_cured("a softmax with a mask of -1e9", net([](const Tensor& x) {
                 const Tensor mask =
                     torch::arange(x.size(0)).remainder(2).unsqueeze(1) > 0;
                 return x.masked_fill(mask, -1e9).softmax(1) * x;
               }));
  expect_cured("the same in place", net([](const Tensor& x) {
                 const Tensor mask =
                     torch::arange(x.size(0)).remainder(2).unsqueeze(1) > 0;
                 return (x * 1).masked_fill_(mask, -1e9).softmax(1) * x;
               }));
  expect_cured("a normalization with eps 1e-8", net([](const Tensor& x) {
                 const Tensor y =
                     x * (torch::arange(x.size(0)) > 4).unsqueeze(1);
                 const Tensor centered = y - y.mean(1, true);
                 return centered *
                        (centered.square().mean(1, true) + 1e-8).rsqrt();
               }));
  // The value of the block is x itself; only its gradient is affected.
  expect_cured(
      "a tanh that saturates",
      net([](const Tensor& x) {
        const Tensor y = (x + 8).tanh();
        return x.detach() + (y - y.detach()) * 1e6;
      }),
      1,
      0.1);
  expect_cured("a log of a sigmoid", net([](const Tensor& x) {
                 return (x - 20).sigmoid().log() * 0.1;
               }));
  expect_cured("a log with eps 1e-8", net([](const Tensor& x) {
                 return (x.relu() + 1e-8).log() * 0.1;
               }));
  expect_cured("a difference of large numbers", net([](const Tensor& x) {
                 return (x + 4000) - 4000;
               }));
}

struct ThreeLayers : nn::Module {
  ThreeLayers() { torch::manual_seed(3); }
  std::vector<nn::Linear> layers = {
      register_module("a", nn::Linear(8, kWidth)),
      register_module("b", nn::Linear(kWidth, kWidth)),
      register_module("c", nn::Linear(kWidth, kWidth))};
  nn::Linear head = register_module("head", nn::Linear(kWidth, 2));
};

// x -> exp -> x, three times; the exps overflow half.
struct ThreeExpsImpl : ThreeLayers {
  Tensor forward(Tensor x) {
    for (nn::Linear& layer : layers) {
      x = ((layer->forward(x).tanh() + 12).exp() * 1e-5).log() + 11.5;
    }
    return head->forward(x);
  }
};

TEST(PrecisionAudit, FindsConsecutiveFaultsInOneAudit) {
  expect_cured("three exps", [] { return std::make_shared<ThreeExpsImpl>(); });
  Learner learn(some_data(), std::make_shared<ThreeExpsImpl>(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_EQ(audit.fp16.keep_fp32, (std::vector<std::string>{"a", "b", "c"}))
      << audit.to_string();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(audit.modules[i].fp16.fault, "exp overflows");
    EXPECT_GT(audit.modules[i].fp16.output.overflow, 0.1);
  }
}

TEST(PrecisionAudit, FindsAParameterOutsideOfAnySubmodule) {
  struct Impl final : nn::Module {
    Impl() { torch::manual_seed(3); }
    Tensor forward(const Tensor& x) {
      return last->forward((first->forward(x) * scale).relu() * 1e-5);
    }
    Tensor scale = register_parameter("scale", torch::full({kWidth}, 6e4));
    nn::Linear first = register_module("first", nn::Linear(8, kWidth));
    nn::Linear last = register_module("last", nn::Linear(kWidth, 2));
  };
  const auto make = [] { return std::make_shared<Impl>(); };
  expect_cured("a scale of 6e4", make);
  Learner learn(some_data(), make(), options_with());
  EXPECT_EQ(
      audit_soundness(learn).fp16.keep_fp32,
      std::vector<std::string>{"scale"});
}

TEST(PrecisionAudit, RespectsTheModelsOwnConversionsToFp32) {
  const auto make = net([](const Tensor& x) {
    const Tensor wide = (x.to(torch::kFloat) + 12).exp() * 1e-5;
    return wide.to(x.scalar_type());
  });
  Learner learn(some_data(), make(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_TRUE(audit.fp16.is_sound && audit.fp16.keep_fp32.empty())
      << audit.to_string();
}

TEST(PrecisionAudit, FindsInputsThatHalfCannotRepresent) {
  expect_cured(
      "inputs of 1e5",
      net([](const Tensor& x) { return x * 1e-4; }, 0.1),
      1e5,
      1e-3);
}

TEST(PrecisionAudit, FindsALayerWhoseGradientsAreNear1eMinus9) {
  struct Impl final : nn::Module {
    Impl() {
      torch::manual_seed(1);
      register_module("small", small);
      register_module("large", large);
    }
    Tensor forward(const Tensor& x) {
      return small(x) * 1e-9 + large(x * 1000) * 10;
    }
    nn::Linear small{8, 2}, large{8, 2};
  };
  Learner learn(some_data(), std::make_shared<Impl>(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  SCOPED_TRACE(audit.to_string());
  // Trains only this layer, to show whether its gradients underflow.
  const auto moved = [&](const MixedPrecisionOptions* options) {
    const auto model = std::make_shared<Impl>();
    for (Tensor& p : model->large->parameters()) p.set_requires_grad(false);
    Learner l(some_data(), model, options_with());
    const Tensor before = model->small->weight.detach().clone();
    parts_of(l).options.lr = 1e7;
    if (options) l.to_fp16(*options);
    l.fit(1);
    l.to_fp32();
    return (model->small->weight.detach() - before).norm().item<double>();
  };
  const MixedPrecisionOptions without{
      .loss_scale = audit.fp16.loss_scale,
      .force_fp16 = true};
  MixedPrecisionOptions with = without;
  with.keep_fp32 = audit.fp16.keep_fp32;
  const double plain = moved(nullptr);
  EXPECT_GT(plain, 1e-3);
  EXPECT_NEAR(moved(&with) / plain, 1, 0.05);
  EXPECT_GT(std::abs(moved(&without) / plain - 1), 0.5);
  EXPECT_GT(audit.fp16.safe_scale_from, audit.fp16.safe_scale_to);
  EXPECT_EQ(audit.fp16.keep_fp32, std::vector<std::string>{"small"});
  EXPECT_TRUE(audit.fp16.is_sound);
  EXPECT_TRUE(audit.bf16.keep_fp32.empty());
}

TEST(PrecisionAudit, AScaledLossOnlyChangesTheLossScale) {
  for (const double factor : {1e6, 1e-6}) {
    const Loss loss([=](Tensor pred, Tensor target) {
      return torch::nn::functional::cross_entropy(pred, target) * factor;
    });
    const auto make = net([](const Tensor& x) { return x.relu(); });
    Learner learn(some_data(), make(), options_with(loss));
    const PrecisionAudit audit = audit_soundness(learn);
    SCOPED_TRACE(audit.to_string());
    EXPECT_TRUE(audit.fp16.keep_fp32.empty());
    EXPECT_LE(audit.fp16.safe_scale_from, audit.fp16.loss_scale);
    EXPECT_LE(audit.fp16.loss_scale, audit.fp16.safe_scale_to);
    const auto plain =
        losses_of(make(), some_data(), options_with(loss), [&](Learner& l) {
          parts_of(l).options.lr = 1e-2 / factor;
        });
    const auto scaled =
        losses_of(make(), some_data(), options_with(loss), [&](Learner& l) {
          parts_of(l).options.lr = 1e-2 / factor;
          l.to_fp16({.loss_scale = audit.fp16.loss_scale, .force_fp16 = true});
        });
    EXPECT_LT(largest_difference(scaled, plain), 0.02);
  }
}

TEST(PrecisionAudit, ReportsWhereUpdatesAreLostWithoutMasterWeights) {
  const auto make = [](double size) {
    Net made([](const Tensor& x) { return x; });
    const torch::NoGradGuard no_grad;
    made->first->weight.copy_(made->first->weight.sign() * size);
    return made;
  };
  Learner large(some_data(), make(50), quiet({.lr = 1e-3}));
  const PrecisionAudit audit = audit_soundness(large);
  SCOPED_TRACE(audit.to_string());
  EXPECT_TRUE(audit.fp16.needs_masters);
  EXPECT_GT(audit.modules.front().fp16.update_lost, 0.5);
  EXPECT_TRUE(audit.fp16.keep_fp32.empty());
  Learner small(some_data(), make(1e-3), quiet({.lr = 1e-2}));
  EXPECT_FALSE(audit_soundness(small).fp16.needs_masters);
}

TEST(PrecisionAudit, ReportsThatRareRowsOfAnEmbeddingNeedMasterWeights) {
  auto generator = at::detail::createCPUGenerator(5);
  const Tensor x = torch::randint(0, 4, {64, 6}, generator).square() * 11;
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{x},
          Tensors{(x.sum(1) > 100).to(torch::kLong)}),
      nullptr,
      {.batch_size = 32, .workers = 0});
  data.device = torch::kCPU;
  torch::manual_seed(1);
  nn::Sequential model(
      nn::Embedding(1000, 8),
      nn::Flatten(),
      nn::Linear(48, 2));
  Learner learn(data, model, quiet({.lr = 1e-4}));
  const PrecisionAudit audit = audit_soundness(learn);
  SCOPED_TRACE(audit.to_string());
  EXPECT_EQ(audit.modules.front().name, "0");
  EXPECT_TRUE(audit.bf16.needs_masters);
  EXPECT_TRUE(audit.fp16.keep_fp32.empty());
}

TEST(PrecisionAudit, BlamesTheDataForANaNInOneSample) {
  DataBunch data = some_data();
  auto generator = at::detail::createCPUGenerator(5);
  const Tensor x = torch::randn({32, 8}, generator);
  x[3][1] = NAN;
  data.train = std::make_shared<DataLoader>(
      std::make_shared<TensorDataset>(
          Tensors{x},
          Tensors{torch::zeros({32}, torch::kLong)}),
      DataLoaderOptions{.batch_size = 32, .shuffle = false, .workers = 0});
  Learner learn(data, net([](const Tensor& y) { return y; })(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_EQ(audit.precision, Precision::fp32);
  ASSERT_FALSE(audit.problems.empty());
  EXPECT_NE(audit.problems[0].find("sample 3"), std::string::npos)
      << audit.problems[0];
}

TEST(PrecisionAudit, BlamesNothingInSoundModels) {
  const auto expect_sound = [](DataBunch data, const Model& model) {
    Learner learn(std::move(data), model, quiet());
    const PrecisionAudit audit = audit_soundness(learn);
    SCOPED_TRACE(audit.to_string());
    EXPECT_TRUE(audit.fp16.is_sound && audit.bf16.is_sound);
    EXPECT_TRUE(audit.fp16.keep_fp32.empty());
    EXPECT_TRUE(audit.bf16.keep_fp32.empty());
    EXPECT_EQ(audit.precision, Precision::bf16);  // on a CPU
  };
  expect_sound(point_data(), point_net());
  struct Lstm final : nn::Module {
    Lstm() {
      torch::manual_seed(1);
      register_module("lstm", lstm);
      register_module("head", head);
    }
    Tensor forward(const Tensor& x) {
      const auto [all, state] = lstm(x.reshape({x.size(0), 4, 2}));
      return head(all.select(1, 3));
    }
    nn::LSTM lstm{nn::LSTMOptions(2, 16).num_layers(2).batch_first(true)};
    nn::Linear head{16, 2};
  };
  expect_sound(some_data(), std::make_shared<Lstm>());
  torch::manual_seed(1);
  nn::Sequential cnn(
      nn::Unflatten(nn::UnflattenOptions(1, {1, 2, 4})),
      nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)),
      nn::BatchNorm2d(8),
      nn::ReLU(nn::ReLUOptions(true)),
      nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)),
      nn::BatchNorm2d(8),
      nn::ReLU(nn::ReLUOptions(true)),
      nn::AdaptiveAvgPool2d(1),
      nn::Flatten(),
      nn::Linear(8, 2));
  expect_sound(some_data(), cnn);
}

TEST(PrecisionAudit, ItsRecommendationCanBeApplied) {
  const auto make = net([](const Tensor& x) { return (x + 12).exp() * 1e-5; });
  Learner learn(some_data(), make(), options_with());
  PrecisionAudit audit = audit_soundness(learn);
  EXPECT_EQ(audit.precision, Precision::bf16);  // which can represent 1e5
  EXPECT_TRUE(audit.options.keep_fp32.empty());
  audit.apply(learn);
  EXPECT_EQ(
      learn.model().parameters()[0].tensor.scalar_type(),
      torch::kBFloat16);
  expect_error<c10::ValueError>(
      [&] { learn.audit_precision(); },
      {"bf16 model, fp32 master weights", "to_fp32() first"});
}

// Distances to far points overflow half, and bfloat16 loses their differences;
// autocast computes cdist in fp32.
struct FarImpl : ThreeLayers {
  static constexpr double kFar = 1e5;
  Tensor forward(Tensor x) {
    for (nn::Linear& layer : layers) {
      x = torch::cdist(layer->forward(x), anchors) - kFar;
    }
    return head->forward(x);
  }
  Tensor anchors = register_buffer("anchors", torch::eye(kWidth) * kFar);
};

TEST(PrecisionAudit, RecommendsAutocastIfOnlyAutocastIsSound) {
  Learner learn(some_data(), std::make_shared<FarImpl>(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_EQ(audit.precision, Precision::amp) << audit.to_string();
  EXPECT_NE(audit.to_string().find("to_amp()"), std::string::npos);
  audit.apply(learn).fit(1);
  EXPECT_TRUE(std::isfinite(learn.recorder().losses().back()));
  EXPECT_TRUE(
      nlohmann::json::parse(audit.to_json())["amp"]["is_sound"].get<bool>());
}

// FarImpl, followed by an operation that autocast also makes inaccurate.
struct FarAndLargeImpl final : FarImpl {
  Tensor forward(const Tensor& x) { return (FarImpl::forward(x) + 4e5) - 4e5; }
};

TEST(PrecisionAudit, RecommendsAutocastWithASeparateListOfModules) {
  Learner learn(
      some_data(),
      std::make_shared<FarAndLargeImpl>(),
      options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  SCOPED_TRACE(audit.to_string());
  EXPECT_EQ(audit.precision, Precision::amp);
  EXPECT_EQ(audit.options.keep_fp32, std::vector<std::string>{"head"});
  EXPECT_NE(
      audit.to_string().find("to_amp({.keep_fp32 = {\"head\"}})"),
      std::string::npos);
  audit.apply(learn).fit(1);
  EXPECT_TRUE(std::isfinite(learn.recorder().losses().back()));
}

TEST(PrecisionAudit, RecommendsFp32IfAutocastIsNotSoundEither) {
  struct Impl final : nn::Module {
    Tensor forward(Tensor x) {
      for (nn::Linear& layer : layers) x = (layer->forward(x) + 4e5) - 4e5;
      return x;
    }
    std::vector<nn::Linear> layers = {
        register_module("a", nn::Linear(8, kWidth)),
        register_module("b", nn::Linear(kWidth, 2))};
  };
  Learner learn(some_data(), std::make_shared<Impl>(), options_with());
  const Tensors before = parameters_of(learn);
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_EQ(audit.precision, Precision::fp32) << audit.to_string();
  EXPECT_EQ(audit.amp.keep_fp32.size(), 2);  // all layers
  EXPECT_TRUE(audit.modules[0].bf16.fault.starts_with("sub is "));
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
}

TEST(PrecisionAudit, PrintsATableAndJson) {
  Learner learn(
      some_data(),
      net([](const Tensor& x) { return (x + 12).exp() * 1e-5; })(),
      options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  const std::string text = audit.to_string();
  EXPECT_NE(text.find("exp overflows"), std::string::npos) << text;
  EXPECT_NE(text.find("recommended: to_bf16()"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(audit.to_json());
  EXPECT_EQ(json["modules"][0]["name"], "first");
  EXPECT_EQ(json["modules"][0]["fault"], "exp overflows");
  EXPECT_EQ(json["modules"][1]["type"], "bf16");
  EXPECT_EQ(json["fp16"]["keep_fp32"][0], "first");
  HtmlPage page("report");
  audit.section()(page);
  EXPECT_NE(page.to_string().find("Magnitudes by depth"), std::string::npos);
}

/// A network that takes 50 ms longer in one dtype.
std::function<Model()> slow_in(torch::ScalarType dtype) {
  return net([dtype](const Tensor& x) {
    if (x.scalar_type() == dtype) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return x.relu();
  });
}

TEST(PrecisionAudit, RecommendsTheFasterPrecisionOnACpu) {
  if (!multiplies_bfloat16()) {
    GTEST_SKIP() << "needs a processor that multiplies bfloat16";
  }
  for (const bool is_bf16_faster : {false, true}) {
    Learner learn(
        some_data(),
        slow_in(is_bf16_faster ? torch::kFloat : torch::kBFloat16)(),
        options_with());
    learn.fit(1);
    const Tensors before = parameters_of(learn);
    const PrecisionAudit audit = learn.audit_precision();
    SCOPED_TRACE(audit.to_string());
    EXPECT_TRUE(audit.bf16.is_sound);
    EXPECT_EQ(
        audit.precision,
        is_bf16_faster ? Precision::bf16 : Precision::fp32);
    const double fp32 = audit.fp32_milliseconds;
    const double bf16 = audit.sixteen_bit_milliseconds;
    EXPECT_GE(is_bf16_faster ? fp32 : bf16, 50);
    EXPECT_LT(is_bf16_faster ? bf16 : fp32, is_bf16_faster ? fp32 : bf16);
    EXPECT_NE(
        audit.to_string().find(
            is_bf16_faster
                ? "recommended: to_bf16(): no problems found; a training step"
                : "recommended: to_fp32(): a training step takes"),
        std::string::npos);
    const auto json = nlohmann::json::parse(audit.to_json());
    EXPECT_EQ(json["step_milliseconds"]["fp32"], fp32);
    EXPECT_EQ(json["step_milliseconds"]["sixteen_bit"], bf16);
    // Measuring changes nothing.
    EXPECT_TRUE(all_equal(parameters_of(learn), before));
    EXPECT_FALSE(learn.find<PrecisionPolicy>());
    audit.apply(learn).fit(1);
    EXPECT_EQ(
        learn.model().parameters()[0].tensor.scalar_type(),
        is_bf16_faster ? torch::kBFloat16 : torch::kFloat);
  }
}

TEST(PrecisionAudit, RecommendsFp32OnACpuWithoutBfloat16) {
  if (multiplies_bfloat16()) {
    GTEST_SKIP() << "needs a processor without bfloat16 instructions";
  }
  Learner learn(some_data(), slow_in(torch::kFloat)(), options_with());
  const PrecisionAudit audit = learn.audit_precision();
  EXPECT_EQ(audit.precision, Precision::fp32);
  EXPECT_EQ(audit.fp32_milliseconds, 0);
  EXPECT_NE(audit.reason.find("no bfloat16"), std::string::npos);
}

// More steps would use up its samples.
TEST(PrecisionAudit, DoesNotMeasureTheSpeedOnAStreamThatCannotRestart) {
  DataBunch data = point_data(8, 16);
  data.train = std::make_shared<DataLoader>(
      std::make_shared<StreamEpochs>(
          std::make_shared<OnePassStream>(points(24), 24),
          /*samples=*/24),
      DataLoaderOptions{.batch_size = 8, .training = true, .workers = 0});
  Learner learn(data, plain_net(), quiet());
  const PrecisionAudit audit = learn.audit_precision();
  EXPECT_EQ(audit.fp32_milliseconds, 0);
  if (multiplies_bfloat16()) EXPECT_EQ(audit.precision, Precision::bf16);
}

// The audit rounds results of fp32, so it does not call such operators.
TEST(PrecisionAudit, RecommendsFp32IfAnOperatorDoesNotSupport16Bits) {
  if (!multiplies_bfloat16()) {
    GTEST_SKIP() << "needs a processor that multiplies bfloat16";
  }
  Learner learn(
      some_data(),
      net([](const Tensor& x) {
        const Tensor square = torch::eye(kWidth, x.options()) * 2;
        return x.matmul(torch::linalg_inv(square));
      })(),
      options_with());
  EXPECT_TRUE(audit_soundness(learn).bf16.is_sound);
  const Tensors before = parameters_of(learn);
  const PrecisionAudit audit = learn.audit_precision();
  EXPECT_EQ(audit.precision, Precision::fp32);
  EXPECT_TRUE(audit.reason.starts_with("training with to_bf16() fails: "))
      << audit.reason;
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  audit.apply(learn).fit(1);
}

TEST(PrecisionAudit, DoesNotMeasureFitsThatACallbackEnds) {
  Learner learn(some_data(), slow_in(torch::kFloat)(), options_with());
  learn.add<StopAfterNBatches>(1);
  EXPECT_EQ(learn.audit_precision().fp32_milliseconds, 0);
}

}  // namespace
}  // namespace tern::precision_audit_test
