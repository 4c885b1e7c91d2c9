// Sparse gradients, from an embedding with `sparse(true)`, either work or are
// rejected with a clear error.

#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/diagnose/plan.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/logging/activation_stats.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::sparse_gradients_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

struct Net : torch::nn::Module {
  torch::nn::Embedding table = register_module(
      "table",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 4).sparse(true)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 2));

  torch::Tensor forward(const torch::Tensor& x) {
    return head(table(x).mean(1));
  }
};

Learner make_learner(LearnerOptions options = {}) {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randint(10, {64, 3}, torch::kLong);
  const torch::Tensor y = (x.sum(1) > 13).to(torch::kLong);
  auto data = DataBunch::create(
      std::make_shared<TensorDataset>(Tensors{x}, Tensors{y}),
      nullptr,
      {.batch_size = 16, .workers = 0});
  data.device = torch::kCPU;
  options.optimizer =
      optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  return Learner(data, std::make_shared<Net>(), quiet(std::move(options)));
}

TEST(SparseGradients, AreCountedByAPlan) {
  Learner learn = make_learner({.weight_decay = 0});
  learn.fit(1, 0.1);  // the momentum is sparse too
  EXPECT_GT(learn.plan({.batches = 1}).optimizer_bytes, 0);
}

TEST(SparseGradients, AreMeasuredByActivationStats) {
  Learner learn = make_learner({.weight_decay = 0});
  const auto stats = std::make_shared<ActivationStats>();
  learn.add(stats).fit(1, 0.1);
  EXPECT_EQ(stats->gradients()[0].name, "table.weight");
  ASSERT_EQ(stats->gradients()[0].mean.size(), 1U);
  EXPECT_GT(stats->gradients()[0].std[0], 0);
}

TEST(SparseGradients, HaveAMomentumThatADryRunRestores) {
  Learner learn = make_learner({.weight_decay = 0});
  learn.fit(1, 0.1);
  Learner plain = make_learner({.weight_decay = 0});
  plain.fit(1, 0.1);
  learn.lr_find({.num_it = 10});
  learn.fit(1, 0.1);
  plain.fit(1, 0.1);
  EXPECT_TRUE(all_equal(parameters_of(learn), parameters_of(plain)));
}

// The momentum is sparse, and within an accumulation window the gradients are.
TEST(SparseGradients, ResumeToTheSameBits) {
  for (const int64_t accumulated : {1, 3}) {
    const TempFolder temp;
    const auto learner = [&] {
      Learner learn = make_learner({.weight_decay = 0});
      learn
          .add<GradientAccumulation>(
              GradientAccumulation::Options{.batches = accumulated})
          .add<LambdaCallback>(
              {.on_batch_end =
                   [&temp](Learner& l) {
                     if (l.state().iteration == 5)
                       l.save_checkpoint(temp / "run");
                   },
               .order = callback_order::kLast});
      return learn;
    };
    Learner whole = learner(), resumed = learner();
    whole.fit(3, 0.1);
    resumed.resume(temp / "run").fit(3, 0.1);
    EXPECT_EQ(resumed.state().iteration, 12);
    EXPECT_TRUE(all_equal(parameters_of(resumed), parameters_of(whole)));
  }
}

TEST(SparseGradients, AreRejectedByGradientPenalty) {
  Learner learn = make_learner({.weight_decay = 0});
  learn.add<GradientPenalty>(0.1);
  expect_error<c10::ValueError>(
      [&] { learn.fit(1, 0.1); },
      {"[GradientPenalty] a gradient is sparse", "sparse(false)"});
}

TEST(SparseGradients, AreRejectedWhereLibTorchCannotAddThem) {
  Learner decays =
      make_learner({.weight_decay = 0.1, .true_weight_decay = false});
  expect_error<c10::ValueError>(
      [&] { decays.fit(1, 0.1); },
      {"[Learner::fit] a parameter's gradient is sparse", "weight decay"});
  Learner half = make_learner({.weight_decay = 0});
  half.to_fp16({.force_fp16 = true});
  half.add<GradientAccumulation>({.batches = 2});
  expect_error<c10::ValueError>(
      [&] { half.fit(1, 0.1); },
      {"[Learner::fit] a parameter's gradient is sparse", "fp16 model"});
}

}  // namespace
}  // namespace tern::sparse_gradients_test
