#include "tern/learner/distributed/gradient_reducer.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/reduced_step.h"

namespace tern::gradient_reducer_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

torch::nn::Sequential make_net(int64_t hidden = 16) {
  return torch::nn::Sequential(
      torch::nn::Linear(8, hidden),
      torch::nn::Tanh(),
      torch::nn::Linear(hidden, 1));
}

void step_down(const torch::nn::Sequential& net) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& p : net->parameters()) {
    p -= 0.1 * p.grad();
    p.mutable_grad().reset();
  }
}

TEST(GradientReducer, MeasuresHowMuchCommunicationBackwardHides) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    auto net = make_net(4096);
    GradientReducer reducer(connect(environment), net->parameters());
    EXPECT_EQ(reducer.times().communication, 0);
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < 4; ++step) {
      reducer.before_forward();
      const auto y = net->forward(torch::randn({64, 8}));
      reducer.before_backward({y});
      y.sum().backward();
    }
    const CommunicationTimes times = reducer.times();
    EXPECT_GT(times.backward, 0);
    EXPECT_GT(times.communication, 0);
    const std::chrono::duration<double> all =
        std::chrono::steady_clock::now() - begin;
    EXPECT_LT(times.backward, all.count());
    EXPECT_LT(times.communication, all.count());
    EXPECT_LE(times.hidden, std::min(times.backward, times.communication));
  });
}

TEST(GradientReducer, TrainsLikeOneProcessWithTheWholeBatch) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    torch::manual_seed(environment.rank);  // rank 0's weights are used
    auto net = make_net();
    GradientReducer reducer(group, net->parameters());
    torch::manual_seed(0);
    auto alone = make_net();

    for (int step = 0; step < 20; ++step) {
      const auto x = torch::randn({32, 8});
      const auto y = x.sum(1, true);
      torch::mse_loss(alone->forward(x), y).backward();
      step_down(alone);

      const int64_t begin = 16 * environment.rank;
      reducer.before_forward();
      const auto out = net->forward(x.narrow(0, begin, 16));
      reducer.before_backward({out});
      torch::mse_loss(out, y.narrow(0, begin, 16)).backward();
      step_down(net);
    }
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(
          net->parameters()[i],
          alone->parameters()[i],
          1e-5,
          1e-6));
    }
  });
}

TEST(GradientReducer, KeepsLocalGradientsWhileAccumulating) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const auto w = torch::ones({3}, torch::requires_grad());
    GradientReducer reducer(group, {w});
    const double mine = 1.0 + static_cast<double>(environment.rank);
    (w * mine).sum().backward();
    EXPECT_TRUE(w.grad().equal(torch::full({3}, mine)));
    // The second backward averages the accumulated gradients: 2 * (1 + 2) / 2.
    reducer.before_forward();
    reducer.before_backward({});
    (w * mine).sum().backward();
    EXPECT_TRUE(w.grad().equal(torch::full({3}, 3.0)));
  });
}

TEST(GradientReducer, AveragesGradientsThatAreSentInHalf) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const auto w = torch::ones({3}, torch::requires_grad());
    GradientReducer reducer(group, {w}, {.compress_to = torch::kHalf});
    reducer.before_forward();
    reducer.before_backward({});
    (w * (1.0 + static_cast<double>(environment.rank))).sum().backward();
    EXPECT_TRUE(w.grad().equal(torch::full({3}, 1.5))) << w.grad();
  });
}

TEST(GradientReducer, PropagatesAnOverflowOfOneRankToAll) {
  for (const bool compress : {false, true}) {
    expect_ranks(2, [&](const LaunchEnvironment& environment) {
      const auto group = connect(environment);
      const auto w = torch::ones({3}, torch::requires_grad());
      GradientReducerOptions options;
      if (compress) options.compress_to = torch::kHalf;
      GradientReducer reducer(group, {w}, options);
      reducer.before_forward();
      reducer.before_backward({});
      // 1e6 overflows in 16 bits only.
      const double factor = environment.rank == 0 ? 1.0
                            : compress            ? 1e6
                                       : std::numeric_limits<float>::infinity();
      (w * factor).sum().backward();
      EXPECT_TRUE(w.grad().isinf().all().item<bool>()) << w.grad();
    });
  }
}

TEST(GradientReducer, MakesEveryRankSkipAStepThatOverflowedOnOne) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    auto net = make_net();
    GradientReducer reducer(group, net->parameters());
    optim::AdamW optimizer(net->parameters());
    GradScaler scaler({.device = torch::kCPU});
    for (int step = 0; step < 3; ++step) {
      reduced_step(
          reducer,
          net,
          optimizer,
          scaler,
          torch::ones({4, 8}),
          /*overflows=*/step == 1 && environment.rank == 1);
    }
    EXPECT_EQ(scaler.get_scale(), 32768);
    std::string state = std::to_string(scaler.growth_tracker());
    for (const torch::Tensor& p : net->parameters()) {
      EXPECT_TRUE(p.isfinite().all().item<bool>());
      const auto bytes = p.detach().contiguous();
      state.append(
          static_cast<const char*>(bytes.const_data_ptr()),
          bytes.nbytes());
    }
    const auto all = group->all_gather(state);
    EXPECT_TRUE(all[0] == all[1]);
  });
}

TEST(GradientReducer, FindsUnusedParameters) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const auto a = torch::ones({2}, torch::requires_grad());
    const auto b = torch::ones({2}, torch::requires_grad());
    GradientReducer reducer(group, {a, b}, {.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      a.mutable_grad().reset();
      b.mutable_grad().reset();
      reducer.before_forward();
      // Rank 0 leaves b out in the second step.
      const bool uses_b = step != 1 || environment.rank == 1;
      const auto out = uses_b ? a.sum() + 2 * b.sum() : a.sum();
      reducer.before_backward({out});
      out.backward();
      EXPECT_TRUE(a.grad().equal(torch::ones({2})));
      EXPECT_TRUE(b.grad().equal(torch::full({2}, step == 1 ? 1.0 : 2.0)));
    }
  });
}

TEST(GradientReducer, ReportsThatTheModelsDiffer) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const auto net = make_net(16 + environment.rank);
    expect_error<DistributedError>(
        [&] { GradientReducer(group, net->parameters()); },
        {"the model of rank 1", "Float[17,8]", "Float[16,8]"});
  });
}

TEST(GradientReducer, RejectsParametersWithoutGradients) {
  expect_ranks(1, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    expect_error<c10::ValueError>(
        [&] { GradientReducer(group, {}); },
        {"there are no parameters"});
    expect_error<c10::ValueError>(
        [&] { GradientReducer(group, {torch::ones({2})}); },
        {"parameter 0 requires no gradient"});
    const auto w = torch::ones({2}, torch::requires_grad());
    expect_error<c10::ValueError>(
        [&] { GradientReducer(group, {w}, {.bucket_megabytes = 0}); },
        {"bucket_megabytes is 0"});
    expect_error<c10::ValueError>(
        [&] { GradientReducer(group, {w}, {.compress_to = torch::kLong}); },
        {"compress_to is Long", "kHalf or kBFloat16"});
  });
}

}  // namespace
}  // namespace tern::gradient_reducer_test
