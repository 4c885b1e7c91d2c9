#include "tern/learner/distributed/sync_batch_norm.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/distributed/process_group.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/support/uneven_batch.h"

namespace tern::sync_batch_norm_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
using torch::nn::BatchNormOptions;

constexpr test::Tolerance kClose = {1e-5, 1e-5};

// Uses no other ranks, and also accepts inputs of any dimension.
SyncBatchNorm alone_norm(const BatchNormOptions& options) {
  return SyncBatchNorm(options, nullptr);
}

TEST(SyncBatchNorm, NormalizesLikeOneProcessWithTheWholeBatch) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{0, 4, 5, 3}, {0, 4}}) {
    expect_ranks(3, [&](const LaunchEnvironment& environment) {
      const auto group = connect(environment);
      const UnevenBatch batch(*group, shape);
      SyncBatchNorm sync(BatchNormOptions(4), group);
      SyncBatchNorm alone = alone_norm(BatchNormOptions(4));
      for (SyncBatchNorm norm : {sync, alone}) {
        const torch::NoGradGuard no_grad;
        norm->weight.copy_(torch::tensor({1.0, 2.0, 0.5, -1.0}));
        norm->bias.fill_(0.3);
      }
      const auto whole = batch.inputs.clone().requires_grad_();
      const auto mine = batch.mine(batch.inputs).clone().requires_grad_();
      const torch::Tensor expected = alone->forward(whole);
      const torch::Tensor output = sync->forward(mine);
      (expected * batch.weights).sum().backward();
      (output * batch.mine(batch.weights)).sum().backward();

      EXPECT_TRUE(test::all_close(output, batch.mine(expected), kClose));
      EXPECT_TRUE(
          test::all_close(mine.grad(), batch.mine(whole.grad()), kClose));
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(
            test::all_close(sync->buffers()[i], alone->buffers()[i], kClose));
        const torch::Tensor sum = sync->parameters()[i].grad();
        group->all_reduce(sum);
        EXPECT_TRUE(
            test::all_close(sum, alone->parameters()[i].grad(), kClose));
      }
      EXPECT_EQ(sync->num_batches_tracked.item<int64_t>(), 1);
    });
  }
}

TEST(SyncBatchNorm, ComputesStatisticsOf16BitInputsInFloat) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      const UnevenBatch batch(*group, {0, 4, 64, 64});
      SyncBatchNorm sync(BatchNormOptions(4), group);
      SyncBatchNorm alone = alone_norm(BatchNormOptions(4));
      const auto mine =
          batch.mine(batch.inputs).to(dtype).clone().requires_grad_();
      const auto whole =
          batch.inputs.to(dtype).to(torch::kFloat).requires_grad_();
      const torch::Tensor output = sync->forward(mine);
      const torch::Tensor expected = alone->forward(whole);
      output.backward(batch.mine(batch.weights).to(dtype));
      expected.backward(batch.weights.to(dtype).to(torch::kFloat));

      EXPECT_EQ(output.scalar_type(), dtype);
      EXPECT_EQ(mine.grad().scalar_type(), dtype);
      EXPECT_EQ(sync->weight.grad().scalar_type(), torch::kFloat);
      // The float result, rounded once.
      const test::Tolerance rounding = {
          dtype == torch::kHalf ? 1e-3 : 8e-3,
          1e-4};
      EXPECT_TRUE(test::all_close(output, batch.mine(expected), rounding));
      EXPECT_TRUE(
          test::all_close(mine.grad(), batch.mine(whole.grad()), rounding));
      EXPECT_TRUE(
          test::all_close(sync->running_var, alone->running_var, kClose));
    }
  });
}

TEST(SyncBatchNorm, IsABatchNormInEvalModeAndOnASingleRank) {
  expect_ranks(1, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    torch::nn::BatchNorm2d plain(4);
    SyncBatchNorm sync(BatchNormOptions(4), group);
    const torch::Tensor x = torch::randn({3, 4, 2, 2});
    EXPECT_TRUE(test::bit_equal(sync->forward(x), plain->forward(x)));
    sync->eval();
    plain->eval();
    EXPECT_TRUE(test::bit_equal(sync->forward(x), plain->forward(x)));
    for (size_t i = 0; i < 3; ++i) {
      const auto buffer = plain->named_buffers()[i];
      EXPECT_TRUE(
          test::bit_equal(sync->named_buffers()[buffer.key()], buffer.value()));
    }
  });
}

TEST(SyncBatchNorm, SupportsNoAffineParametersAndCumulativeAverages) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const auto options =
        BatchNormOptions(4).affine(false).momentum(std::nullopt);
    SyncBatchNorm sync(options, group), alone = alone_norm(options);
    const UnevenBatch batch(*group, {0, 4, 6});
    for (int step = 0; step < 3; ++step) {
      const auto whole = (batch.inputs + step).requires_grad_();
      const auto mine = (batch.mine(batch.inputs) + step).requires_grad_();
      const torch::Tensor expected = alone->forward(whole);
      const torch::Tensor output = sync->forward(mine);
      EXPECT_TRUE(test::all_close(output, batch.mine(expected), kClose));
      expected.pow(3).sum().backward();
      output.pow(3).sum().backward();
      EXPECT_TRUE(
          test::all_close(mine.grad(), batch.mine(whole.grad()), {1e-4, 1e-4}));
    }
    EXPECT_TRUE(
        test::all_close(sync->running_mean, alone->running_mean, kClose));
  });
}

TEST(SyncBatchNorm, IsClonedWithItsCommunicator) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const UnevenBatch batch(*group, {0, 4, 2, 2});
    torch::nn::Sequential net{SyncBatchNorm(BatchNormOptions(4), group)};
    const auto copy =
        std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
    EXPECT_TRUE(test::bit_equal(
        copy->forward(batch.mine(batch.inputs)),
        net->forward(batch.mine(batch.inputs))));
    EXPECT_EQ(copy->buffers().size(), 3);
    EXPECT_FALSE(copy->buffers()[0].is_same(net->buffers()[0]));
  });
}

TEST(SyncBatchNorm, RejectsWhatItCannotDo) {
  expect_ranks(1, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    SyncBatchNorm norm(BatchNormOptions(4), group);
    expect_error<c10::ValueError>(
        [&] {
          norm->forward(torch::ones({2, 3, 2, 2}));
        },
        {"[2, 3, 2, 2]", "[N, 4, ...]"});
    const auto call = [&](const torch::Tensor& input) {
      sync_batch_norm(input, {}, {}, {}, {}, 0.1, 1e-5, group);
    };
    expect_error<c10::ValueError>(
        [&] {
          call(torch::ones({0, 4}));
        },
        {"[0, 4]", "one value per channel"});
    const auto x = torch::randn({3, 4}).requires_grad_();
    const auto output = sync_batch_norm(x, {}, {}, {}, {}, 0.1, 1e-5, group);
    expect_error<c10::NotImplementedError>(
        [&] {
          torch::autograd::grad(
              {output.square().sum()},
              {x},
              {},
              /*retain_graph=*/true,
              /*create_graph=*/true);
        },
        {"double backward is not supported", "create_graph"});
  });
}

}  // namespace
}  // namespace tern::sync_batch_norm_test
