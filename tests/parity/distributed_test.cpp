// Compares twenty steps of two processes with Python's DistributedDataParallel.
// The test forks, so only its children use tensors.

#include <algorithm>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/distributed/gradient_reducer.h"
#include "tern/tests/parity/fixture.h"
#include "tern/tests/parity/nets.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/tolerance.h"

namespace tern::parity_distributed_test {
namespace {

void expect_the_run_of_python(
    const std::shared_ptr<ProcessGroup>& group,
    const nlohmann::json& fixture,
    const nlohmann::json& run) {
  const test::World world(fixture);
  torch::nn::Sequential net = test::new_net(world.weights[0]);
  GradientReducerOptions options;
  if (run["travel_as"] != "float32") {
    options.compress_to = test::dtype_of(run["travel_as"]);
  }
  GradientReducer reducer(group, net->parameters(), options);
  const auto optimizer =
      test::new_optimizer("sgd", test::Library::libtorch, net->parameters());
  const int64_t samples = world.labels.size(1) / group->world_size();
  for (int64_t step = 0; step < fixture["steps"].get<int64_t>(); ++step) {
    const auto mine = [&](const torch::Tensor& of_all) {
      return of_all[step % world.batches()].narrow(
          0,
          group->rank() * samples,
          samples);
    };
    optimizer->zero_grad();
    reducer.before_forward();
    const auto loss =
        test::loss_of(net, mine(world.images), mine(world.labels));
    reducer.before_backward({loss});
    loss.backward();
    optimizer->step();
  }
  Tensors gradients;
  for (const torch::Tensor& p : net->parameters()) {
    gradients.push_back(p.grad().flatten());
  }
  const torch::Tensor gradient = torch::cat(gradients);
  double tolerance = 1e-6;
  if (!test::rounds_alike()) {
    // If gradients are reduced in 16 bits, a different processor may round both
    // ranks' contributions to neighboring values.
    const double spacing = run["travel_as"] == "bfloat16" ? 0x1p-7 : 0x1p-10;
    tolerance =
        std::max(1e-4, 2 * spacing * gradient.abs().max().item<double>());
  }
  const auto expect_close = [&](const torch::Tensor& actual, const auto& name) {
    EXPECT_TRUE(test::all_close(actual, test::decode(name), {0, tolerance}));
  };
  expect_close(gradient, run["gradients"]);
  expect_close(test::parameters_of(net), run["parameters"][0]);
}

TEST(DistributedParity, TrainsLikePythonsDistributedDataParallel) {
  testing_support::expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = ProcessGroup::connect(
        environment,
        {.timeout = std::chrono::seconds(30)});
    const nlohmann::json fixture = test::load_fixture("distributed");
    EXPECT_EQ(fixture["runs"].size(), 3);
    for (const auto& run : fixture["runs"]) {
      SCOPED_TRACE(run["travel_as"].get<std::string>());
      expect_the_run_of_python(group, fixture, run);
    }
  });
}

}  // namespace
}  // namespace tern::parity_distributed_test
