#include <filesystem>
#include <functional>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/gpu_test.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::precision_cuda_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

const torch::Device kDevice = torch::kCUDA;

class PrecisionCudaTest : public GpuTest {};

using Mode = std::function<void(Learner&)>;

std::unique_ptr<Learner> learner_on(torch::Device device, const Mode& set_up) {
  DataBunch data = point_data(250);
  data.device = device;
  auto learn = std::make_unique<Learner>(
      data,
      point_net(),
      quiet({.metrics = {accuracy()}, .seed = 3}));
  set_up(*learn);
  return learn;
}

void expect_to_learn_as_on_the_cpu(const Mode& set_up) {
  const auto here = learner_on(kDevice, set_up);
  const auto cpu = learner_on(torch::kCPU, [](Learner&) {});
  for (Learner* learn : {here.get(), cpu.get()}) learn->fit(5, 1e-2);
  const EpochRecord& last = here->recorder().epochs().back();
  EXPECT_NEAR(
      last.valid_loss,
      cpu->recorder().epochs().back().valid_loss,
      0.02);
  EXPECT_GT(last.metrics[0].value, 0.9);
}

TEST_F(PrecisionCudaTest, Fp32LearnsAsOnTheCpu) {
  expect_to_learn_as_on_the_cpu([](Learner&) {});
}
TEST_F(PrecisionCudaTest, Fp16LearnsAsOnTheCpu) {
  expect_to_learn_as_on_the_cpu(
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); });
}
TEST_F(PrecisionCudaTest, Bf16LearnsAsOnTheCpu) {
  expect_to_learn_as_on_the_cpu([](Learner& l) { l.to_bf16(); });
}
TEST_F(PrecisionCudaTest, AmpLearnsAsOnTheCpu) {
  expect_to_learn_as_on_the_cpu([](Learner& l) { l.to_amp(); });
}

TEST_F(PrecisionCudaTest, ToFp16ConvertsAllButBatchNorm) {
  const auto learn =
      learner_on(kDevice, [](Learner& l) { l.to_fp16({.force_fp16 = true}); });
  learn->fit(1);
  for (const ModelTensor& p : learn->model().parameters()) {
    EXPECT_EQ(p.tensor.device().type(), kDevice.type());
    EXPECT_EQ(
        p.tensor.scalar_type(),
        p.name.starts_with("1.") ? torch::kFloat : torch::kHalf)
        << p.name;
  }
}

TEST_F(PrecisionCudaTest, AnOverflowLeavesWeightsAndMasterWeightsBitIdentical) {
  const Mode modes[] = {
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
      [](Learner& l) { l.to_fp16({.clip = 1.0, .force_fp16 = true}); },
      [](Learner& l) { l.to_amp({.dtype = torch::kHalf}); }};
  for (const Mode& set_up : modes) {
    const auto learn = learner_on(kDevice, set_up);
    learn->fit(1, 1e-2);
    const auto tensors = [&] {
      Tensors copies;
      for (const auto& item : learn->state_dict()) {
        // The forward pass updates the statistics of BatchNorm.
        if (item.key().find("running") == std::string::npos &&
            item.key().find("tracked") == std::string::npos) {
          copies.push_back(item.value().clone());
        }
      }
      return copies;
    };
    const Tensors before = tensors();
    learn->add(overflow_at({7, 8, 9, 10, 11, 12, 13})).fit(1, 1e-2);
    EXPECT_TRUE(all_equal(tensors(), before));
    EXPECT_EQ(learn->recorder().skipped_steps().size(), 7u);
  }
}

TEST_F(PrecisionCudaTest, AResumedRunIsBitIdenticalToAnUninterruptedRun) {
  const Mode modes[] = {
      [](Learner&) {},
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
      [](Learner& l) { l.to_amp(); },
      [](Learner& l) { l.add<Ema>(0.9).add<TrainMetrics>(); },
      [](Learner& l) { l.to_fp16({.force_fp16 = true}).add<Ema>(0.9); },
      [](Learner& l) { l.add<Swa>({.start = 0.3}); }};
  for (const Mode& set_up : modes) {
    const TempFolder temp;
    const auto whole = learner_on(kDevice, set_up);
    whole->fit_one_cycle(3, 1e-2);
    const auto stopped = learner_on(kDevice, set_up);
    stopped->add<SaveCheckpoint>({.folder = temp / "run", .durable = false})
        .add<LambdaCallback>(
            {.on_epoch_end =
                 [](Learner& l) {
                   if (l.state().epoch == 1)
                     throw std::runtime_error("power cut");
                 },
             .order = callback_order::kLast});
    EXPECT_THROW(stopped->fit_one_cycle(3, 1e-2), std::runtime_error);
    const auto resumed = learner_on(kDevice, set_up);
    resumed->resume(temp / "run");
    resumed->fit_one_cycle(3, 1e-2);
    EXPECT_TRUE(all_equal(parameters_of(*resumed), parameters_of(*whole)));
  }
}

}  // namespace
}  // namespace tern::precision_cuda_test
