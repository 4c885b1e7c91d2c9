#include "tern/callbacks/averages/averaged_weights.h"

#include <functional>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/multi_optimizer.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/checkpoint/save.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::averaged_weights_test {
namespace {

using namespace testing_support;  // NOLINT

std::unique_ptr<Learner> learner(const TempFolder& folder) {
  return std::make_unique<Learner>(
      point_data(128, 0),
      point_net(),
      quiet({.optimizer = ranger(), .weight_decay = 0, .path = folder.path()}));
}

// Returns the largest change of a weight in a fit with a learning rate of 0, in
// which only Lookahead's slow weights can move one.
double moved_at_rate_0(Learner& learn) {
  const Tensors before = parameters_of(learn);
  learn.fit(2, 0.0);
  const Tensors after = parameters_of(learn);
  double most = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    most = std::max(most, (after[i] - before[i]).abs().max().item<double>());
  }
  return most;
}

StateDict plus_100(const Learner& learn) {
  StateDict result;
  for (const auto& item : learn.state_dict()) {
    const torch::Tensor& value = item.value();
    result.insert(
        item.key(),
        value.is_floating_point() ? value + 100 : value.clone());
  }
  return result;
}

struct Way {
  const char* name;
  std::function<void(Learner&)> replace;
};

// All ways in which something other than the optimizer changes the weights
// after a fit.
const Way kWays[] = {
    {"load_state_dict",
     [](Learner& l) {
       l.fit(1);
       l.load_state_dict(plus_100(l));
     }},
    {"load without the optimizer",
     [](Learner& l) {
       l.fit(1);
       l.save("net");
       l.fit(1);
       l.load("net", {.with_optimizer = false});
     }},
    {"Swa",
     [](Learner& l) {
       l.fit(3, 3e-2, {std::make_shared<Swa>(Swa::Options{.start = 0})});
     }},
    {"a removed Ema",
     [](Learner& l) { l.fit(2, 3e-2, {std::make_shared<Ema>(0.9)}); }},
    {"a removed Ema that was applied by hand",
     [](Learner& l) {
       const auto ema =
           std::make_shared<Ema>(Ema::Options{.decay = 0.9, .at_end = false});
       l.add(ema).fit(2, 3e-2);
       ema->apply(l);
       l.remove(*ema);
     }},
    {"Ema and weights written after it",
     [](Learner& l) {
       l.add<Ema>(Ema::Options{.decay = 0.9, .at_end = true}).fit(2, 3e-2);
       const torch::NoGradGuard no_grad;
       for (const ModelTensor& p : l.model().parameters()) {
         torch::Tensor(p.tensor).fill_(0.25);
       }
     }},
    {"bfloat16 without master weights, which rounds the weights",
     [](Learner& l) {
       l.fit(1);
       l.to_bf16({.master_weights = false});
     }},
    {"bfloat16, and load_state_dict", [](Learner& l) {
       l.to_bf16().fit(1);
       l.load_state_dict(plus_100(l));
     }}};

TEST(WeightCopies, OfAnOptimizerFollowReplacedWeights) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const TempFolder folder;
    const auto learn = learner(folder);
    way.replace(*learn);
    EXPECT_EQ(moved_at_rate_0(*learn), 0);
  }
}

TEST(WeightCopies, FollowReplacedWeightsInAnyOrder) {
  for_random_cases(8, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const TempFolder folder;
    const auto learn = learner(folder);
    // The last two change the precision.
    for (int i = 0; i < 3; ++i) {
      const size_t drawn = random() % (std::size(kWays) - 2);
      SCOPED_TRACE(kWays[drawn].name);
      if (const auto ema = learn->find<Ema>()) learn->remove(*ema);
      kWays[drawn].replace(*learn);
      EXPECT_EQ(moved_at_rate_0(*learn), 0);
    }
  });
}

TEST(WeightCopies, AreLoadedWithTheirFile) {
  const TempFolder folder;
  const auto whole = learner(folder);
  whole->fit(1);  // 4 steps; slow weights move after 6
  whole->save("net");
  whole->save_checkpoint(folder / "run");
  whole->fit(2);
  const auto loaded = learner(folder);
  loaded->fit(1, 1e-1);
  loaded->load("net").fit(2);
  EXPECT_TRUE(all_equal(parameters_of(*loaded), parameters_of(*whole)));
  const auto resumed = learner(folder);
  resumed->resume("run").fit(1).fit(2);
  EXPECT_TRUE(all_equal(parameters_of(*resumed), parameters_of(*whole)));
}

TEST(WeightCopies, AreRestoredWithTheWeightsAfterAnAverage) {
  const auto train = [](bool stops) {
    const TempFolder folder;
    auto learn = learner(folder);
    learn->add<Ema>(0.9).fit(2);
    if (stops) {
      learn->save_checkpoint(folder / "run");
      learn = learner(folder);
      learn->add<Ema>(0.9).resume("run").fit(2);
    }
    learn->fit(2);
    return parameters_of(*learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(WeightCopies, OfSeveralOptimizersFollowReplacedWeights) {
  const TempFolder folder;
  auto net = point_net();
  const auto loss = [net](const Batch& batch) mutable {
    return torch::nn::CrossEntropyLoss()(
        net->forward(batch.inputs[0]),
        batch.targets[0]);
  };
  Learner learn(point_data(128, 0), net, quiet({.weight_decay = 0}));
  learn.add<MultiOptimizer>(
      {.parts = {
           {.name = "body",
            .loss = loss,
            .optimizer = ranger(),
            .modules = {"0", "1"}},
           {.name = "head",
            .loss = loss,
            .optimizer = ranger(),
            .modules = {"3"}}}});
  learn.fit(1);
  learn.load_state_dict(plus_100(learn));
  EXPECT_EQ(moved_at_rate_0(learn), 0);
}

}  // namespace
}  // namespace tern::averaged_weights_test
