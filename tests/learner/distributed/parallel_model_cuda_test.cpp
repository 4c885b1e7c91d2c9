#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tiny.h"

namespace tern::parallel_model_cuda_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

class ParallelModelCudaTest : public GpuTest {};

void expect_same_training(
    void (*set_up)(Learner&),
    double tolerance,
    torch::Device device = {torch::kCUDA, 0}) {
  std::vector<Tensors> weights;
  for (const bool is_parallel : {false, true}) {
    DataBunch data = point_data(250);
    data.device = device;
    Learner learn(
        data,
        plain_net(),
        quiet(
            {.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1)),
             .seed = 3}));
    set_up(learn);
    if (is_parallel) learn.to_parallel({data.device, data.device});
    learn.fit(2, 0.1);
    weights.push_back(parameters_of(learn));
  }
  for (size_t i = 0; i < weights[0].size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(weights[0][i], weights[1][i], tolerance, tolerance))
        << i;
  }
}

TEST_F(ParallelModelCudaTest, TheSameDeviceTwiceTrainsLikeOnceInFp32) {
  expect_same_training([](Learner&) {}, 1e-5);
}
TEST_F(ParallelModelCudaTest, TheSameDeviceTwiceTrainsLikeOnceInFp16) {
  expect_same_training([](Learner& l) { l.to_fp16(); }, 1e-2);
}
TEST_F(ParallelModelCudaTest, TheSameDeviceTwiceTrainsLikeOnceUnderAutocast) {
  expect_same_training([](Learner& l) { l.to_amp(); }, 1e-2);
}
TEST_F(ParallelModelCudaTest, ADeviceWithoutAnIndexIsTheCurrentOne) {
  expect_same_training([](Learner&) {}, 1e-5, torch::kCUDA);
}

}  // namespace
}  // namespace tern::parallel_model_cuda_test
