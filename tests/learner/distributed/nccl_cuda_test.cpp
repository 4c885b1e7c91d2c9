#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/launch.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::nccl_cuda_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

// One process with one GPU runs all code except the network. It does not fork,
// because a child cannot use its parent's CUDA context.
class NcclCudaTest : public GpuTest {
 protected:
  std::unique_ptr<Learner> learner(void (*set_up)(Learner&)) {
    LaunchEnvironment environment;
    environment.master_port = free_port();
    export_environment(environment);
    DataBunch data = point_data(250);
    data.device = torch::Device(torch::kCUDA, 0);
    auto learn =
        std::make_unique<Learner>(data, point_net(), quiet({.seed = 3}));
    set_up(*learn);
    return learn;
  }
};

TEST_F(NcclCudaTest, OneProcessTrainsAsWithoutAGroup) {
  void (*const precisions[])(Learner&) = {
      [](Learner&) {},
      [](Learner& l) { l.to_fp16(); },
      [](Learner& l) { l.to_amp(); }};
  for (const auto precision : precisions) {
    const auto alone = learner(precision), group = learner(precision);
    group->to_distributed();
    alone->fit(2, 1e-2);
    group->fit(2, 1e-2);
    const Tensors a = parameters_of(*alone), b = parameters_of(*group);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-6)) << i;
    }
  }
}

TEST_F(NcclCudaTest, AResumedRunIsBitIdenticalToOneThatNeverStopped) {
  const TempFolder temp;
  const auto distributed = [](Learner& l) { l.to_fp16().to_distributed(); };
  const auto whole = learner(distributed);
  whole->fit(3, 1e-2);
  const auto stopped = learner(distributed);
  stopped->add<SaveCheckpoint>({.folder = temp / "run", .durable = false})
      .add<LambdaCallback>({.on_batch_end = [](Learner& l) {
        if (l.state().iteration == 10) l.request_stop();
      }});
  stopped->fit(3, 1e-2);
  const auto resumed = learner(distributed);
  resumed->resume(temp / "run");
  resumed->fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*resumed), parameters_of(*whole)));
}

}  // namespace
}  // namespace tern::nccl_cuda_test
