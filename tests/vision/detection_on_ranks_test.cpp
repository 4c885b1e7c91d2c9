// A detector trained by several processes.

#include <chrono>
#include <memory>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/distributed.h"
#include "tern/learner/metrics/mean_average_precision.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/vision/squares.h"

namespace tern::detection_on_ranks_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

/// Returns all weights, the losses and the average precision on the validation
/// images as kDouble.
torch::Tensor result_of(Learner& learn) {
  Tensors all;
  for (const torch::Tensor& p : parameters_of(learn)) {
    all.push_back(p.flatten().to(torch::kDouble));
  }
  const double map = learn.state()["map_1"];
  all.push_back(torch::tensor({learn.state().valid_loss, map}, torch::kDouble));
  return torch::cat(all);
}

TEST(DetectionOnRanks, TrainsAndEvaluatesLikeOneProcess) {
  const Squares squares;
  for (const int64_t world_size : {1, 2, 3}) {
    expect_ranks(world_size, [&](const LaunchEnvironment&) {
      // Each epoch has one step of 6 of the 9 training images; 3 images are for
      // evaluation.
      Learner learn = squares.learner(
          {.frozen_norm = true,
           .learner =
               {.optimizer =
                    optimizer<optim::SGD>(torch::optim::SGDOptions(0.1)),
                .metrics = {mean_average_precision({.iou = 0.01})}}},
          6 / world_size);
      learn.data().outputs[0].detection.score_thresh = 0;
      learn.to_distributed({.group = {.timeout = std::chrono::seconds(30)}});
      learn.fit(2, 1e-3);
      const torch::Tensor result = result_of(learn);
      if (world_size == 1) {
        return save_safetensors(squares / "one", {{"result", result}});
      }
      const torch::Tensor expected = load_weights(squares / "one")["result"];
      EXPECT_TRUE(torch::allclose(result, expected, 1e-4, 1e-5))
          << world_size << " " << (result - expected).abs().max();
      EXPECT_GT(result[-1].item<double>(), 0);
    });
  }
}

}  // namespace
}  // namespace tern::detection_on_ranks_test
