#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/cuda_graph/step_graph.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/tests/callbacks/diagnose/audited.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/tiny.h"

namespace tern::sync_audit_cuda_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

const torch::Device kDevice = torch::kCUDA;

class SyncAuditCudaTest : public GpuTest {};

DataBunch data_on_device() {
  DataBunch data = point_data();
  data.device = kDevice;
  return data;
}

void expect_no_wait(void (*set_up)(Learner&)) {
  for (const OptimizerFactory& factory : fused_optimizers()) {
    Learner learn(
        data_on_device(),
        point_net(),
        quiet({.optimizer = factory, .metrics = {accuracy()}}));
    set_up(learn);
    // The graph is captured in the fourth step.
    learn.add<SyncAudit>({.warm_up = 4}).add<GradientClip>(1.0).add<Ema>();
    learn.fit_one_cycle(2);
    EXPECT_EQ(findings_of(*learn.find<SyncAudit>()), "");
    EXPECT_EQ(learn.find<SyncAudit>()->steps(), 2 * 8 - 4);
  }
}

TEST_F(SyncAuditCudaTest, FindsNoSyncInFp32) {
  expect_no_wait([](Learner&) {});
}
TEST_F(SyncAuditCudaTest, FindsNoSyncInFp16) {
  expect_no_wait([](Learner& l) { l.to_fp16({.force_fp16 = true}); });
}
TEST_F(SyncAuditCudaTest, FindsNoSyncInFp16WithAStaticLossScale) {
  expect_no_wait([](Learner& l) {
    l.to_fp16({.loss_scale = 512, .clip = 1.0, .force_fp16 = true});
  });
}
TEST_F(SyncAuditCudaTest, FindsNoSyncInBf16) {
  expect_no_wait([](Learner& l) { l.to_bf16(); });
}
TEST_F(SyncAuditCudaTest, FindsNoSyncWithAmp) {
  expect_no_wait([](Learner& l) { l.to_amp(); });
}
TEST_F(SyncAuditCudaTest, FindsNoSyncInACudaGraph) {
  expect_no_wait([](Learner& l) { l.to_fp16().to_cuda_graph(); });
}

TEST_F(SyncAuditCudaTest, NamesTheCallbackThatReadsAValue) {
  Learner learn(data_on_device(), point_net(), quiet());
  learn.add<SyncAudit>().add<LambdaCallback>({.on_batch_end = [](Learner& l) {
    static_cast<void>(l.state().loss.item<float>());
  }});
  learn.fit(1);
  EXPECT_EQ(
      findings_of(*learn.find<SyncAudit>()),
      "LambdaCallback in on_batch_end: a synchronization with the GPU, 5\n");
}

}  // namespace
}  // namespace tern::sync_audit_cuda_test
