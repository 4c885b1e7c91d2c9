#include "tern/callbacks/diagnose/sync_audit.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/types.h>
#ifdef TERN_TEST_CUDA_WAITS
#include <c10/cuda/CUDAFunctions.h>
#endif

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/tests/callbacks/diagnose/audited.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::sync_audit_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

struct LossReader final : Callback {
  void on_batch_end(Learner& learn) override {
    sum += learn.state().loss.item<double>();
  }
  double sum = 0;
};

// Reads a value of its input, like a model with data-dependent control flow.
struct CuriousImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return x.sum().item<float>() > 1e9 ? -x : x;
  }
};
TORCH_MODULE(Curious);

TEST(SyncAudit, FindsNothingInAnyPrecisionWithTheFusedOptimizers) {
  using Mode = void (*)(Learner&);
  const Mode kModes[] = {
      [](Learner&) {},
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
      [](Learner& l) { l.to_fp16({.loss_scale = 512, .force_fp16 = true}); },
      [](Learner& l) { l.to_bf16(); },
      [](Learner& l) { l.to_amp(); }};
  for (const Mode mode : kModes) {
    for (const OptimizerFactory& factory : fused_optimizers()) {
      Learner learn(
          point_data(),
          point_net(),
          quiet({.optimizer = factory, .metrics = {accuracy()}}));
      mode(learn);
      const auto audit = std::make_shared<SyncAudit>();
      learn.add(audit).add<GradientClip>(1.0).add<Ema>();
      learn.fit_one_cycle(2);
      EXPECT_EQ(findings_of(*audit), "");
      EXPECT_EQ(audit->steps(), 2 * 8 - 3);
    }
  }
}

TEST(SyncAudit, NamesTheCallbackTheEventAndTheOperation) {
  const auto sink = std::make_shared<MemorySink>();
  const auto audit = std::make_shared<SyncAudit>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add(audit).add<LossReader>().fit(1);
  EXPECT_EQ(
      findings_of(*audit),
      "LossReader in on_batch_end: aten::_local_scalar_dense, 5\n");
  EXPECT_NE(
      sink->lines.back().find("LossReader in on_batch"),
      std::string::npos)
      << sink->lines.back();
  learn.remove(*learn.find<LossReader>());
  learn.fit(1);
  EXPECT_EQ(
      sink->lines.back(),
      "SyncAudit: 5 steps, nothing synchronizes with the device");
}

TEST(SyncAudit, NamesThePhaseOfTheStep) {
  const auto audit = std::make_shared<SyncAudit>();
  torch::nn::Sequential net = point_net();
  net->push_back(Curious());
  LearnerOptions options = quiet();
  options.loss = [](const torch::Tensor& x, const torch::Tensor& y) {
    const auto loss = torch::nn::functional::cross_entropy(x, y);
    EXPECT_FALSE(loss.isnan().nonzero().size(0) > 0);
    return loss;
  };
  Learner(point_data(), net, options).add(audit).fit(1);
  EXPECT_EQ(
      findings_of(*audit),
      "the model: aten::_local_scalar_dense, 5\n"
      "the loss: aten::nonzero, 5\n");
}

TEST(SyncAudit, IgnoresEvaluationsWithinAStep) {
  const auto sink = std::make_shared<MemorySink>();
  const auto audit = std::make_shared<SyncAudit>();
  Learner learn(
      point_data(),
      point_net(),
      {.metrics = {accuracy()}, .sink = sink});
  learn.add(audit).add<LambdaCallback>({.on_step = [](Learner& l) {
    l.validate();
    TORCH_WARN("of something else");
    torch::ones({}).item<double>();
  }});
  learn.fit(1);
  EXPECT_EQ(
      findings_of(*audit),
      "LambdaCallback in on_step: aten::_local_scalar_dense, 5\n");
  EXPECT_EQ(sink->warnings, std::vector<std::string>(1, "of something else"));
}

TEST(SyncAudit, ReportsThatTheFitWasTooShort) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<SyncAudit>({.warm_up = 8}).fit(1);
  EXPECT_NE(sink->lines.back().find("nothing was measured"), std::string::npos);
  expect_error<c10::ValueError>(
      [] { SyncAudit({.warm_up = -1}); },
      {"warm_up is -1"});
}

#ifdef TERN_TEST_CUDA_WAITS
// Triggers the warning that LibTorch's CUDA library emits before each
// synchronization.
TEST(SyncAudit, CountsLibTorchsSyncWarningsAndKeepsOtherWarnings) {
  const auto sink = std::make_shared<MemorySink>();
  const auto audit = std::make_shared<SyncAudit>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add(audit).add<LambdaCallback>({.on_step = [](Learner&) {
    if (c10::cuda::warning_state().get_sync_debug_mode() !=
        c10::cuda::SyncDebugMode::L_DISABLED) {
      c10::cuda::warn_or_error_on_sync();
      TORCH_WARN("of something else");
    }
  }});
  learn.fit(1);
  EXPECT_EQ(
      findings_of(*audit),
      "LambdaCallback in on_step: a synchronization with the GPU, 5\n");
  EXPECT_EQ(sink->warnings, std::vector<std::string>(1, "of something else"));
}
#endif

}  // namespace
}  // namespace tern::sync_audit_test
