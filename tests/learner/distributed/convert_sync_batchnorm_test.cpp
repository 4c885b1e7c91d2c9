#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/amp/autocast.h"
#include "tern/learner/distributed/sync_batch_norm.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/support/uneven_batch.h"

namespace tern::convert_sync_batchnorm_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

constexpr test::Tolerance kClose = {1e-5, 1e-5};

// A net with members of fixed types, as is usual in C++.
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(3, 4, 1));
    bn = register_module("bn", torch::nn::BatchNorm2d(4));
    tail = register_module(
        "tail",
        torch::nn::Sequential(
            torch::nn::Conv2d(4, 2, 1),
            torch::nn::BatchNorm2d(2)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return tail->forward(bn->forward(conv->forward(x)).relu());
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
  torch::nn::Sequential tail{nullptr};
};
TORCH_MODULE(Net);

Net make_net() {
  torch::manual_seed(5);
  return Net();
}

TEST(ConvertSyncBatchnorm, LetsAModelWithTypedMembersNormalizeOverAllRanks) {
  expect_ranks(3, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const UnevenBatch batch(*group, {0, 3, 4, 4});
    Net net = make_net(), alone = make_net();
    const auto names = net->named_parameters().keys();
    const torch::Tensor mine = batch.mine(batch.inputs);
    convert_sync_batchnorm(net, group);
    EXPECT_EQ(net->named_parameters().keys(), names);

    const torch::Tensor expected = alone->forward(batch.inputs);
    const torch::Tensor output = net->forward(mine);
    EXPECT_TRUE(test::all_close(output, batch.mine(expected), kClose));
    expected.square().sum().backward();
    output.square().sum().backward();
    for (size_t i = 0; i < names.size(); ++i) {
      const torch::Tensor sum = net->parameters()[i].grad();
      group->all_reduce(sum);
      EXPECT_TRUE(
          test::all_close(sum, alone->parameters()[i].grad(), {1e-4, 1e-4}))
          << names[i];
    }
    for (size_t i = 0; i < net->buffers().size(); ++i) {
      EXPECT_TRUE(
          test::all_close(net->buffers()[i], alone->buffers()[i], kClose));
    }
  });
}

TEST(ConvertSyncBatchnorm, WorksUnderAutocastAndOn16BitModels) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const UnevenBatch batch(*group, {0, 3, 8, 8});
    const torch::Tensor mine = batch.mine(batch.inputs);
    Net net = make_net(), alone = make_net();
    convert_sync_batchnorm(net, group);
    {
      const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
      const torch::Tensor output = net->forward(mine);
      EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
      EXPECT_TRUE(test::all_close(
          output,
          batch.mine(alone->forward(batch.inputs)),
          {2e-2, 2e-2}));
    }
    // The layers that to_bf16 converts; the running means stay the same
    // tensors.
    for (Net each : {net, alone}) {
      each->conv->to(torch::kBFloat16);
      each->tail->children()[0]->to(torch::kBFloat16);
    }
    EXPECT_TRUE(test::all_close(
        net->forward(mine.to(torch::kBFloat16)),
        batch.mine(alone->forward(batch.inputs.to(torch::kBFloat16))),
        {2e-2, 2e-2}));
  });
}

TEST(ConvertSyncBatchnorm, LeavesOtherModelsEvaluationAndLostRanksUnchanged) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    auto group = connect(environment);
    const torch::Tensor x =
        torch::randn({2 + environment.rank, 3, 4, 4}) + environment.rank;
    const torch::Tensor before = make_net()->forward(x);
    Net net = make_net();
    convert_sync_batchnorm(net, group);
    // Only one rank calls these, so they must not wait for the other.
    if (environment.rank == 0) {
      EXPECT_TRUE(test::bit_equal(make_net()->forward(x), before));
      Net evaluated = make_net();
      evaluated->eval();
      net->eval();
      EXPECT_TRUE(test::bit_equal(net->forward(x), evaluated->forward(x)));
      net->train();
    }
    group->barrier();
    group.reset();
    EXPECT_TRUE(test::bit_equal(net->forward(x), before));
  });
}

TEST(ConvertSyncBatchnorm, RejectsWhatItCannotDo) {
  expect_ranks(1, [](const LaunchEnvironment& environment) {
    expect_error<c10::ValueError>(
        [&] { convert_sync_batchnorm(make_net(), nullptr); },
        {"the communicator is null"});
    torch::nn::Sequential untracked{torch::nn::BatchNorm1d(
        torch::nn::BatchNormOptions(4).track_running_stats(false))};
    expect_error<c10::ValueError>(
        [&] { convert_sync_batchnorm(untracked, connect(environment)); },
        {"\"0\"", "track_running_stats(true)"});
  });
}

}  // namespace
}  // namespace tern::convert_sync_batchnorm_test
