// The registered parameters are trained, including the parameters of modules
// that are added after the Learner is created, or that replace others.

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/multi_optimizer.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::new_parameters_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

torch::nn::Linear linear(int64_t in, int64_t out, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Linear(in, out);
}

// Creates its last layer in the first forward pass.
struct Lazy : torch::nn::Module {
  torch::nn::Linear body = register_module("body", linear(2, 8, 1));
  torch::nn::Linear head{nullptr};
  bool has_type_of_input = false;

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(body(x));
    if (!head) {
      head = register_module("head", linear(x.size(1), 2, 2));
      if (has_type_of_input) head->to(x.scalar_type());
    }
    return head(x);
  }
};

TEST(NewParameters, FromTheFirstForwardPassAreTrainedLikeExistingOnes) {
  for (const bool has_amp : {false, true}) {
    SCOPED_TRACE(has_amp);
    Tensors first;
    for (const bool is_made_before : {true, false}) {
      const auto net = std::make_shared<Lazy>();
      if (is_made_before) net->forward(torch::zeros({1, 2}));
      Learner learn(point_data(), net, quiet());
      if (has_amp) learn.to_amp();
      learn.add<Ema>(0.9);
      learn.fit_one_cycle(2, 1e-2).fit(1, 1e-2);
      if (is_made_before) {
        first = parameters_of(learn);
      } else {
        EXPECT_TRUE(all_equal(parameters_of(learn), first));
      }
    }
  }
}

TEST(NewParameters, FromTheFirstForwardPassAreNamedIfTheyCannotBeTrained) {
  const auto net = std::make_shared<Lazy>();
  net->has_type_of_input = true;
  Learner half(point_data(), net, quiet());
  expect_error<c10::ValueError>(
      [&] { half.to_bf16().fit(1); },
      {"\"head.weight\", \"head.bias\"", "master weights", "forward once"});
  // Now the layer exists.
  half.fit(1);
  Learner trial(point_data(), std::make_shared<Lazy>(), quiet());
  expect_error<c10::ValueError>(
      [&] { trial.lr_find(); },
      {"\"head.weight\"", "dry run", "forward once"});
  trial.lr_find();
}

struct Changing : torch::nn::Module {
  torch::nn::Linear body = register_module("body", linear(2, 8, 1));
  torch::nn::Linear head = register_module("head", linear(8, 2, 2));
  torch::nn::Linear more{nullptr};

  torch::Tensor forward(torch::Tensor x) {
    x = head(torch::relu(body(x)));
    return more ? more(x) : x;
  }
};

// Modules added between fits, in each precision.
TEST(NewParameters, AddedBetweenFitsAreTrainedAndSaved) {
  using SetPrecision = void (*)(Learner&);
  for (const SetPrecision set_precision :
       {SetPrecision([](Learner&) {}),
        SetPrecision([](Learner& l) { l.to_bf16(); }),
        SetPrecision([](Learner& l) { l.to_fp16({.force_fp16 = true}); }),
        SetPrecision([](Learner& l) { l.to_bf16({.master_weights = false}); }),
        SetPrecision([](Learner& l) { l.to_amp(); })}) {
    const TempFolder folder;
    const auto net = std::make_shared<Changing>();
    Learner learn(point_data(), net, quiet({.path = folder.path()}));
    set_precision(learn);
    learn.fit(1, 1e-2);
    net->more = net->register_module("more", linear(2, 2, 3));
    net->body = net->replace_module("body", linear(2, 8, 4));
    const StateDict before = Model(net).state_dict();
    StateDict fresh;
    for (const char* const name : {"more.weight", "body.weight"}) {
      fresh.insert(name, before[name].to(torch::kFloat, false, true));
    }
    learn.save("new");
    const StateDict saved = load_weights(folder / "models/new.safetensors");
    learn.fit(1, 1e-2);
    // Without master weights, the weights are rounded.
    const auto masters = master_weights(learn);
    const bool is_rounded = masters && masters->masters().empty();
    const auto is_fresh = [&](const torch::Tensor& weight, const auto& item) {
      const torch::Tensor& exact = item.value();
      return torch::equal(
          weight,
          is_rounded ? exact.to(torch::kBFloat16).to(torch::kFloat) : exact);
    };
    for (const auto& item : fresh) {
      SCOPED_TRACE(item.key());
      EXPECT_TRUE(is_fresh(saved[item.key()], item));
      EXPECT_FALSE(is_fresh(learn.state_dict()[item.key()], item));
    }
    learn.load("new");
    for (const auto& item : fresh) {
      SCOPED_TRACE(item.key());
      EXPECT_TRUE(is_fresh(learn.state_dict()[item.key()], item));
    }
  }
}

TEST(NewParameters, AreRejectedIfMultiOptimizerDividesTheParameters) {
  torch::nn::Sequential net(linear(2, 8, 1), linear(8, 2, 2));
  const auto loss = [net](const Batch& batch) mutable {
    return net->forward(batch.inputs[0]).square().mean();
  };
  Learner learn(point_data(), net, quiet());
  learn.add<MultiOptimizer>(MultiOptimizer::Options{
      .parts = {{.name = "0", .loss = loss}, {.name = "1", .loss = loss}}});
  learn.fit(1, 1e-3);
  net->push_back(linear(2, 2, 3));
  expect_error<c10::ValueError>(
      [&] { learn.fit(1, 1e-3); },
      {"\"2.weight\", \"2.bias\"", "MultiOptimizer"});
}

// ---- Compared with a loop in plain LibTorch ----

// SGD with momentum over whatever parameters the network has at each step.
class HandLoop {
 public:
  explicit HandLoop(torch::nn::Sequential net) : net_(std::move(net)) {}

  void fit(const DataBunch& data, double rate) {
    auto batches = data.train->epoch(epochs_++);
    while (auto batch = batches.next()) {
      torch::nn::functional::cross_entropy(
          net_->forward(batch->inputs[0]),
          batch->targets[0])
          .backward();
      const torch::NoGradGuard no_grad;
      for (const ModelTensor& p : Model(net_).parameters()) {
        if (!p.tensor.grad().defined()) continue;
        auto& [parameter, momentum] = momenta_[p.tensor.unsafeGetTensorImpl()];
        parameter = p.tensor;
        momentum = momentum.defined() ? momentum * 0.9 + p.tensor.grad()
                                      : p.tensor.grad().clone();
        torch::Tensor(p.tensor).sub_(momentum, rate);
        p.tensor.mutable_grad().reset();
      }
    }
  }

 private:
  torch::nn::Sequential net_;
  // Keeps the parameter alive, so that no address is reused.
  std::map<const void*, std::pair<torch::Tensor, torch::Tensor>> momenta_;
  int64_t epochs_ = 0;
};

void check_drawn(uint64_t seed) {
  std::mt19937_64 draw(seed);
  const auto one_of = [&](uint64_t count) { return draw() % count; };
  const auto make = [] {
    return torch::nn::Sequential(
        linear(2, 4, 1),
        linear(4, 4, 2),
        linear(4, 2, 3));
  };
  torch::nn::Sequential net = make(), by_hand = make();
  const bool is_fused = one_of(2) == 0;
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  Learner learn(
      point_data(64, 0),
      net,
      quiet(
          {.optimizer = is_fused ? optimizer<optim::SGD>(options)
                                 : optimizer<torch::optim::SGD>(options),
           .weight_decay = 0,
           .bn_weight_decay = one_of(2) == 0}));
  learn.split({"1", "2"});
  HandLoop loop(by_hand);
  const DataBunch data = point_data(64, 0);
  for (uint64_t fit = 0; fit < 3; ++fit) {
    for (uint64_t i = one_of(3); i > 0; --i) {
      const uint64_t layer_seed = draw();
      const uint64_t at = one_of(net->size() + 1);
      const int64_t in = at == 0 ? 2 : at < 3 ? 4 : 2;
      const int64_t out = at < 2 ? 4 : 2;
      for (torch::nn::Sequential* const one : {&net, &by_hand}) {
        const auto layer = linear(in, out, layer_seed);
        if (at == (*one)->size()) {
          (*one)->push_back(layer);
        } else {
          // Replaces the layer in place, which changes both the registered layer
          // and the one that forward calls.
          *(*one)->begin()[at].ptr<torch::nn::LinearImpl>() = *layer;
        }
      }
    }
    const double rate = 0.01 * static_cast<double>(1 + one_of(5));
    learn.fit(1, rate);
    loop.fit(data, rate);
    const auto got = learn.model().parameters();
    const auto expected = Model(by_hand).parameters();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(
          torch::allclose(got[i].tensor, expected[i].tensor, 1e-4, 1e-6))
          << got[i].name << " in fit " << fit;
    }
  }
}

TEST(NewParameters, InAnyOrderOfFitsAndChangesAreTrainedAsInAHandWrittenLoop) {
  for_random_cases(30, check_drawn);
}

// ---- Parameters without a gradient ----

struct TwoHeads : torch::nn::Module {
  torch::nn::Linear used = register_module("used", linear(2, 2, 1));
  torch::nn::Linear unused = register_module("unused", linear(2, 2, 2));

  torch::Tensor forward(const torch::Tensor& x) { return used(x); }
};

TEST(UnusedParameters, AreNamedOncePerFit) {
  const auto sink = std::make_shared<MemorySink>();
  const auto net = std::make_shared<TwoHeads>();
  // Replaces the member, but not the registered module.
  net->used = linear(2, 2, 3);
  net->used->weight.requires_grad_(true);
  Learner learn(point_data(), net, {.sink = sink});
  learn.fit(2, 1e-2);
  ASSERT_EQ(sink->warnings.size(), 1u);
  for (const char* const words :
       {"does not depend on 4 of 4 parameters",
        "\"used.weight\", \"used.bias\", \"unused.weight\", \"unused.bias\"",
        "replace_module",
        "warn_unused_parameters"}) {
    EXPECT_NE(sink->warnings[0].find(words), std::string::npos) << words;
  }
}

TEST(UnusedParameters, AreNotNamedIfFrozenOrExpected) {
  const auto sink = std::make_shared<MemorySink>();
  const auto frozen = std::make_shared<TwoHeads>();
  for (torch::Tensor& p : frozen->unused->parameters()) p.requires_grad_(false);
  Learner(point_data(), frozen, {.sink = sink}).fit(1);
  Learner(
      point_data(),
      std::make_shared<TwoHeads>(),
      {.sink = sink, .warn_unused_parameters = false})
      .fit(1);
  Learner all(point_data(), point_net(), {.sink = sink});
  all.to_fp16({.force_fp16 = true}).fit(1);
  all.lr_find();
  EXPECT_TRUE(sink->warnings.empty());
}

}  // namespace
}  // namespace tern::new_parameters_test
