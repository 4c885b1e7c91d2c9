#include "tern/learner/amp/keep_fp32.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/precision_audit.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/activation_checkpoint.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::keep_fp32_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;
namespace nn = torch::nn;

// first -> exp -> last; records the result dtype of each.
struct NetImpl final : nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
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

TEST(KeepFp32, KeepingAllLayersAndInputsIsBitIdenticalToFp32Training) {
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

TEST(KeepFp32, AKeptParameterSetsTheTypeAtAnyArgumentPosition) {
  const Tensor kept = torch::ones({2, 2}), half = kept.to(kHalf);
  const KeptParameters parameters = {kept.unsafeGetTensorImpl()};
  const KeepFp32Guard guard(parameters);
  EXPECT_EQ(torch::addmm(kept, half, half).scalar_type(), kFloat);
  EXPECT_EQ(torch::addmm(half, half, kept).scalar_type(), kFloat);
  EXPECT_EQ(torch::addmm(half, half, half).scalar_type(), kHalf);
}

TEST(KeepFp32, EveryKindOfLayerAcceptsTheOutputOfThePreviousLayer) {
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

// A precision mode and the dtype of its 16-bit layers.
struct Mode {
  const char* name;
  std::function<void(Learner&, std::vector<std::string>)> apply;
  torch::ScalarType dtype;
};

const std::vector<Mode>& modes() {
  using Names = std::vector<std::string>;
  static const std::vector<Mode> modes = {
      {"to_fp16",
       [](Learner& l, Names kept) { l.to_fp16(keep(std::move(kept))); },
       kHalf},
      {"to_bf16",
       [](Learner& l, Names kept) { l.to_bf16(keep(std::move(kept))); },
       torch::kBFloat16},
      {"to_amp",
       [](Learner& l, Names kept) {
         l.to_amp({.dtype = kHalf, .keep_fp32 = std::move(kept)});
       },
       kHalf}};
  return modes;
}

// a -> `use`, which combines the result with k -> b.
struct UseImpl final : nn::Module {
  using Function = std::function<Tensor(UseImpl&, const Tensor&)>;
  explicit UseImpl(Function use) : use(std::move(use)) {
    torch::manual_seed(1);
    register_module("a", a);
    register_module("k", k);
    register_module("table", table);
    register_module("b", b);
    view = k->weight.t();
  }
  Tensor forward(const Tensor& x) {
    Tensor y = use(*this, a(x.unsqueeze(1).expand({-1, 3, -1}).contiguous()));
    types = {y.scalar_type()};
    y = b(y.view({x.size(0), 3, 4}).mean(1));
    types.push_back(y.scalar_type());
    return y;
  }
  Function use;
  nn::Linear a{2, 4}, k{nn::LinearOptions(4, 4).bias(false)}, b{4, 2};
  nn::Embedding table{3, 4};
  Tensor view;
  Types types;
};
TORCH_MODULE(Use);

TEST(KeepFp32, ResultsOfAKeptWeightAreFp32) {
  const std::vector<std::pair<const char*, UseImpl::Function>> uses = {
      {"its module, on [N, T, C]",
       [](UseImpl& m, const Tensor& x) { return m.k(x); }},
      {"its module, on [N, C]",
       [](UseImpl& m, const Tensor& x) { return m.k(x.flatten(0, 1)); }},
      {"transposed",
       [](UseImpl& m, const Tensor& x) { return x.matmul(m.k->weight.t()); }},
      {"a slice",
       [](UseImpl& m, const Tensor& x) {
         return torch::linear(x, m.k->weight.slice(0, 0, 4));
       }},
      {"a view from before the forward pass",
       [](UseImpl& m, const Tensor& x) { return x.matmul(m.view); }},
      {"normalized",
       [](UseImpl& m, const Tensor& x) {
         return torch::linear(x, m.k->weight / m.k->weight.norm());
       }},
      {"as a scale",
       [](UseImpl& m, const Tensor& x) { return x * m.k->weight[0][0]; }},
      {"in a sum of products",
       [](UseImpl& m, const Tensor& x) {
         return torch::einsum("ntc,dc->ntd", {x, m.k->weight});
       }},
      {"scores of its outputs",
       [](UseImpl& m, const Tensor& x) {
         const Tensor y = m.k(x);
         return torch::bmm(torch::bmm(y, y.transpose(1, 2)).softmax(-1), y);
       }},
      {"rows of a table", [](UseImpl& m, const Tensor& x) {
         return torch::bmm(
             m.table(torch::zeros({x.size(0), 3}, torch::kLong)),
             torch::eye(4).expand({x.size(0), -1, -1}));
       }}};
  for (const Mode& mode : modes()) {
    for (const auto& [what, use] : uses) {
      SCOPED_TRACE(std::string(mode.name) + ", " + what);
      Use net(use);
      Learner learn(point_data(64, 0), net, quiet());
      mode.apply(learn, {"k", "table"});
      learn.fit(1);
      EXPECT_EQ(net->types, (Types{kFloat, mode.dtype}));
    }
  }
}

// Residual sums over a kept layer and a layer after it, then BatchNorm.
struct SumsImpl final : nn::Module {
  explicit SumsImpl(std::vector<int64_t> shape) : shape(std::move(shape)) {
    torch::manual_seed(1);
    register_module("first", first);
    register_module("k", k);
    register_module("next", next);
    register_module("norm", norm);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) {
    types.clear();
    const auto seen = [&](Tensor result) {
      types.push_back(result.scalar_type());
      return result;
    };
    Tensor y = first(x.view(shape));
    y = seen(y + k(y)).relu();
    y = seen(y + seen(next(y)));
    y = k(y.flatten(0, -2));
    return last(seen(norm(y)));
  }
  std::vector<int64_t> shape;
  nn::Linear first{2, 8}, k{8, 8}, next{nn::LinearOptions(8, 8).bias(false)},
      last{8, 2};
  nn::BatchNorm1d norm{8};
  Types types;
};
TORCH_MODULE(Sums);

TEST(KeepFp32, AfterAKeptLayerAllIsIn16BitsFromTheNextLayerOn) {
  const std::vector<std::vector<int64_t>> shapes = {{-1, 2}, {-1, 1, 2}};
  for (const auto& shape : shapes) {
    for (const Mode& mode : modes()) {
      SCOPED_TRACE(mode.name + std::to_string(shape.size()));
      Sums net(shape);
      Learner learn(point_data(64, 0), net, quiet());
      mode.apply(learn, {"k"});
      learn.fit(1);
      // As always, autocast adds and normalizes in the wider dtype.
      const bool is_amp = mode.name == std::string("to_amp");
      const auto narrow = mode.dtype, wide = is_amp ? kFloat : narrow;
      EXPECT_EQ(net->types, (Types{kFloat, narrow, wide, wide}));
    }
  }
}

TEST(KeepFp32, DoesNotAffectOperationsWithoutKeptLayers) {
  // Operations without a kept layer: products and sums of 16-bit tensors with
  // fp32 tensors that the program creates, and explicit conversions to 16 bits.
  Use net([](UseImpl& m, const Tensor& x) {
    const Tensor y = m.k(x);  // kept
    EXPECT_EQ(y.to(kHalf).scalar_type(), kHalf);
    EXPECT_EQ(y.type_as(x).scalar_type(), kHalf);
    const Tensor z = m.b(x.to(kFloat));
    EXPECT_EQ(z.scalar_type(), kHalf);
    EXPECT_EQ((x.to(kFloat) + x).scalar_type(), kFloat);
    EXPECT_EQ(x.to(kFloat).exp().scalar_type(), kFloat);
    EXPECT_EQ(torch::add(x, x).scalar_type(), kHalf);
    EXPECT_EQ((y.clone() + x).scalar_type(), kHalf);
    Tensor written = x.clone();
    EXPECT_EQ(written.add_(y).scalar_type(), kHalf);
    return written;
  });
  Learner learn(point_data(64, 0), net, quiet());
  learn.to_fp16(keep({"k"})).fit(1);
  EXPECT_EQ(net->types, (Types{kHalf, kHalf}));
}

TEST(KeepFp32, KeepsTheFrozenWeightThatAnAdapterIsAddedTo) {
  for (const Mode& mode : modes()) {
    SCOPED_TRACE(mode.name);
    Use net([](UseImpl& m, const Tensor& x) { return m.k(x); });
    Learner learn(
        point_data(64, 0),
        add_lora(net, {.rank = 2, .targets = {"a", "k", "b"}}),
        quiet());
    mode.apply(learn, {"k"});
    EXPECT_EQ(net->k->weight.scalar_type(), kFloat);
    learn.fit(1);
    EXPECT_EQ(net->types, (Types{kFloat, mode.dtype}));
  }
}

TEST(KeepFp32, ABackwardPassWithinTheForwardPassHasNoEffectOnIt) {
  Use net([](UseImpl& m, const Tensor& x) {
    Tensor y = m.k(x);
    const Tensor z = m.b(y);
    const auto product = [&] {
      return torch::bmm(y, y.transpose(1, 2)).scalar_type();
    };
    EXPECT_EQ(product(), kHalf);  // after b
    torch::autograd::grad({z.sum()}, {m.a->weight}, {}, /*retain_graph=*/true);
    EXPECT_EQ(product(), kHalf);
    return y;
  });
  Learner learn(point_data(64, 0), net, quiet());
  learn.to_amp({.dtype = kHalf, .keep_fp32 = {"k"}}).fit(1);
  EXPECT_EQ(net->types, (Types{kFloat, kHalf}));
}

struct PartImpl final : nn::Module {
  explicit PartImpl(nn::Sequential layers)
      : layers(register_module("layers", std::move(layers))) {}
  Tensor forward(const Tensor& x) { return layers->forward(x); }
  nn::Sequential layers;
};
TORCH_MODULE(Part);

TEST(KeepFp32, IsTheSameWithActivationCheckpointing) {
  // The recomputed part begins with a kept layer, with activations inside a
  // kept module, or after it.
  for (const Mode& mode : modes()) {
    const auto trained = [&](size_t again, const char* kept) {
      torch::manual_seed(1);
      const nn::Functional products(
          [](const Tensor& x) { return x + x.matmul(x.t()).matmul(x) / 16; });
      const auto part = [&](nn::Sequential layers, bool is_again) {
        return Part(
            is_again ? nn::Sequential(ActivationCheckpoint(layers)) : layers);
      };
      nn::Sequential net(
          part(nn::Sequential(nn::Linear(2, 8)), again == 1),
          part(nn::Sequential(products, nn::Linear(8, 8)), again == 2),
          part(nn::Sequential(nn::ReLU(), nn::Linear(8, 2)), again == 3));
      Learner learn(point_data(64, 0), net, quiet());
      mode.apply(learn, {kept});
      learn.fit(1);
      return parameters_of(learn);
    };
    for (const char* kept : {"0", "1", "2"}) {
      const Tensors usual = trained(0, kept);
      for (const size_t again : {1, 2, 3}) {
        SCOPED_TRACE(mode.name + std::to_string(again) + kept);
        EXPECT_TRUE(all_equal(trained(again, kept), usual));
      }
    }
  }
}

// Attention over three tokens, the last of which may be padding.
struct MaskedImpl final : nn::Module {
  explicit MaskedImpl(bool masks) : masks(masks) {
    register_module("in", in);
    register_module("attention", attention);
    register_module("encoder", encoder);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) {
    const Tensor tokens =
        in(x).unsqueeze(0) *
        torch::tensor({1.0F, 2.0F, 30.0F}, x.options()).view({3, 1, 1});
    const Tensor padding =
        torch::tensor({false, false, true}).expand({x.size(0), -1});
    const Tensor bias = torch::zeros({3, 3}, x.options());
    const Tensor mask = masks ? padding : Tensor();
    const auto [y, weights] =
        attention->forward(tokens, tokens, tokens, mask, true, bias);
    const Tensor z = encoder->forward(y, bias, mask);
    types = {y.scalar_type(), z.scalar_type()};
    if (masks) EXPECT_EQ(weights.select(2, 2).abs().max().item<float>(), 0);
    return out(z.slice(0, 0, 2).mean(0));
  }
  bool masks;
  nn::Linear in{2, 8}, out{8, 2};
  nn::MultiheadAttention attention{nn::MultiheadAttentionOptions(8, 2)};
  nn::TransformerEncoderLayer encoder{
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(8).dropout(0)};
  Types types;
};
TORCH_MODULE(Masked);

TEST(KeepFp32, AnAttentionWithAPaddingMaskTrainsInEvery16BitMode) {
  for (const bool masks : {true, false}) {
    const auto make = [&] {
      torch::manual_seed(1);
      return Masked(masks);
    };
    Learner usual(point_data(64, 0), make(), quiet({.seed = 1}));
    usual.fit(2);
    for (const Mode& mode : modes()) {
      SCOPED_TRACE(mode.name + std::to_string(masks));
      Masked net = make();
      Learner learn(point_data(64, 0), net, quiet({.seed = 1}));
      mode.apply(learn, {});
      learn.fit(2);
      EXPECT_EQ(net->types, (Types{mode.dtype, mode.dtype}));
      EXPECT_NEAR(
          learn.recorder().losses().back(),
          usual.recorder().losses().back(),
          0.05);
      mode.apply(learn, {"attention", "encoder"});
      learn.fit(1);
      EXPECT_EQ(net->types, (Types{kFloat, kFloat}));
    }
    const PrecisionAudit audit = Learner(point_data(64, 0), make(), quiet())
                                     .audit_precision({.measure_speed = false});
    EXPECT_TRUE(audit.fp16.is_sound && audit.bf16.is_sound)
        << audit.to_string();
    EXPECT_TRUE(audit.fp16.keep_fp32.empty() && audit.bf16.keep_fp32.empty());
  }
}

TEST(KeepFp32, NamesTheAvailableModulesIfNoneMatches) {
  Learner learn(point_data(), Net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.to_fp16(keep({"fist"})); },
      {"keep_fp32 names 'fist'", "first, last"});
  EXPECT_EQ(master_weights(learn), nullptr);
  learn.fit(1);
}

TEST(MixedPrecisionCallback, ConvertsTheModelWhenAddedAndBackWhenRemoved) {
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

TEST(MixedPrecisionCallback, CanBePassedToASingleFit) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(1, {}, {std::make_shared<MixedPrecision>(kHalf)});
  EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), kFloat);
  learn.fit(1);
}

TEST(MixedPrecisionCallback, CanBeAddedByType) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<MixedPrecision>(kHalf).fit(1);
  EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), kHalf);
}

TEST(MixedPrecisionCallback, ToBf16AcceptsItsOptions) {
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

TEST(KeepFp32, IsNotSupportedOnSeveralDevicesOfAProcess) {
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
