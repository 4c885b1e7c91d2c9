// A run that is stopped at any step and resumed from its checkpoint ends
// bit-identical to a run that was never stopped.

#include "tern/learner/checkpoint/resume.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/mix.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/run_control.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/same_end.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::resume_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

// With dropout, so that the state of the random generator matters.
torch::nn::Sequential dropout_net() {
  torch::manual_seed(7);
  return torch::nn::Sequential(
      torch::nn::Linear(2, 16),
      torch::nn::BatchNorm1d(16),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(16, 2));
}

// Draws random numbers in evaluation too.
torch::nn::Sequential noisy_net() {
  torch::nn::Sequential net = dropout_net();
  net->push_back(torch::nn::Functional(
      [](const torch::Tensor& x) { return x + 0.1 * torch::randn_like(x); }));
  return net;
}

std::shared_ptr<Callback> at_epoch_begin(
    int64_t epoch,
    std::function<void(Learner&)> act) {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_epoch_begin = [epoch, act = std::move(act)](Learner& l) {
        if (l.state().epoch == epoch) act(l);
      }});
}

// A program: how it creates its Learner, and how it trains.
struct Program {
  std::string name;
  std::function<void(Learner&)> set_up = [](Learner&) {};
  std::function<void(Learner&)> train = [](Learner& l) { l.fit(3, 1e-2); };
  OptimizerFactory optimizer = {};
  int64_t workers = 0;
  torch::nn::Sequential (*net)() = dropout_net;
};

std::ostream& operator<<(std::ostream& out, const Program& program) {
  return out << program.name;
}

void with_adapters(Learner& learn) {
  add_lora(learn, {.rank = 2, .targets = {"0"}, .train = {"4"}});
}

std::unique_ptr<Learner> make_learner(const Program& program) {
  auto learn = std::make_unique<Learner>(
      point_data(
          200,
          50,
          {.batch_size = 32, .seed = 3, .workers = program.workers}),
      program.net(),
      quiet(
          {.optimizer = program.optimizer,
           .metrics = {accuracy()},
           .seed = 11}));
  program.set_up(*learn);
  return learn;
}

// Saves and throws after `iterations` training batches, as if the program had
// been killed there.
std::shared_ptr<Callback> die_after(
    int64_t iterations,
    const fs::path& folder) {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end =
          [iterations, folder](Learner& l) {
            if (l.state().training && l.state().iteration == iterations) {
              write_checkpoint(
                  folder,
                  capture_checkpoint(l),
                  {.durable = false});
              throw std::runtime_error("killed");
            }
          },
      .order = callback_order::kSaveCheckpoint});
}

void run_until(const Program& program, const fs::path& folder, int64_t step) {
  const auto learn = make_learner(program);
  if (has_checkpoint(folder)) learn->resume(folder);
  learn->add(die_after(step, folder));
  try {
    program.train(*learn);
  } catch (const std::runtime_error&) {
  }
}

// The first and last step, the end of an epoch, and a step in the middle; every
// step in `./dev fault`.
std::vector<int64_t> stops(int64_t steps) {
  if (std::getenv("TERN_KILLS") == nullptr) return {1, 6, 8, steps};
  std::vector<int64_t> all(steps);
  std::iota(all.begin(), all.end(), 1);
  return all;
}

class Resume : public testing::TestWithParam<Program> {};

TEST_P(Resume, EndsBitIdenticalToTheUninterruptedRun) {
  const auto whole = make_learner(GetParam());
  GetParam().train(*whole);
  const int64_t steps = whole->state().iteration;
  for (const int64_t step : stops(steps)) {
    SCOPED_TRACE("stopped after step " + std::to_string(step));
    const TempFolder folder;
    run_until(GetParam(), folder / "run", step);
    const auto resumed = make_learner(GetParam());
    resumed->resume(folder / "run");
    GetParam().train(*resumed);
    expect_same_end(*resumed, *whole);
  }
}

TEST_P(Resume, AfterSeveralStopsEndsBitIdentical) {
  const auto whole = make_learner(GetParam());
  GetParam().train(*whole);
  const TempFolder folder;
  for (const int64_t step : {2, 3, 7, 12, 14}) {
    run_until(GetParam(), folder / "run", step);
  }
  const auto resumed = make_learner(GetParam());
  resumed->resume(folder / "run");
  GetParam().train(*resumed);
  expect_same_end(*resumed, *whole);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Resume,
    testing::Values(
        Program{"fp32"},
        Program{
            "two_workers",
            [](Learner&) {},
            [](Learner& l) { l.fit(3); },
            {},
            2},
        Program{"to_bf16", [](Learner& l) { l.to_bf16(); }},
        Program{"to_fp16", [](Learner& l) { l.to_fp16(); }},
        Program{"to_amp", [](Learner& l) { l.to_amp(); }},
        Program{
            "accumulation",
            [](Learner& l) { l.add<GradientAccumulation>({.batches = 3}); }},
        Program{
            "accumulation_by_loss_count",
            [](Learner& l) {
              parts_of(l).options.loss = torch::nn::CrossEntropyLoss(
                  torch::nn::CrossEntropyLossOptions().weight(
                      torch::tensor({1.f, 5.f})));
              l.add<GradientAccumulation>({.batches = 3});
            }},
        Program{
            "bf16_accumulation",
            [](Learner& l) {
              l.to_bf16().add<GradientAccumulation>({.batches = 3});
            }},
        Program{
            "one_cycle",
            [](Learner&) {},
            [](Learner& l) { l.fit_one_cycle(3, 1e-2); }},
        Program{"lora", with_adapters},
        Program{
            "bf16_lora",
            [](Learner& l) {
              with_adapters(l);
              l.to_bf16();
            }},
        Program{
            "fp16_lora",
            [](Learner& l) {
              with_adapters(l);
              l.to_fp16();
            }},
        Program{
            "amp_lora",
            [](Learner& l) {
              with_adapters(l);
              l.to_amp();
            }},
        Program{"ema", [](Learner& l) { l.add<Ema>(0.9); }},
        Program{"bf16_ema", [](Learner& l) { l.to_bf16().add<Ema>(0.9); }},
        Program{"mixup", [](Learner& l) { l.add<MixUp>(); }},
        Program{
            "plateau",
            [](Learner& l) {
              l.add<ReduceLROnPlateau>(
                  {.min_delta = 10, .patience = 1, .factor = 2});
            }},
        Program{
            "early_stopping",
            [](Learner& l) { l.add<EarlyStopping>({.min_delta = 10}); }},
        Program{
            "two_fits",
            [](Learner& l) { l.split({"4"}); },
            [](Learner& l) {
              l.freeze().fit(1, 1e-2);
              l.unfreeze().fit(2, {1e-3, 1e-2});
            }},
        Program{
            "fine_tune",
            [](Learner& l) { l.split({"4"}); },
            [](Learner& l) { l.fine_tune(2); }},
        Program{
            "torch_adam",
            [](Learner&) {},
            [](Learner& l) { l.fit(3, 1e-2); },
            optimizer<torch::optim::Adam>(torch::optim::AdamOptions())},
        Program{
            "torch_rmsprop",
            [](Learner&) {},
            [](Learner& l) { l.fit(3, 1e-2); },
            optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions())},
        Program{
            "fused_sgd",
            [](Learner& l) { l.to_bf16(); },
            [](Learner& l) { l.fit(3, 1e-2); },
            optimizer<optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9))},
        Program{
            .name = "stop_epoch",
            .set_up =
                [](Learner& l) {
                  l.add<LambdaCallback>({.on_batch_end = [](Learner& l) {
                    TrainState& s = l.state();
                    if (s.training && s.batch == 5) s.stop_epoch = true;
                  }});
                }},
        Program{
            .name = "stop_epoch_of_the_last_callback",
            .set_up =
                [](Learner& l) {
                  l.add<LambdaCallback>(
                      {.on_batch_end =
                           [](Learner& l) {
                             TrainState& s = l.state();
                             if (s.training && s.batch == 5) {
                               s.stop_epoch = true;
                             }
                           },
                       .order = callback_order::kLast});
                }},
        Program{
            .name = "rates_set_by_another_thread",
            .set_up =
                [](Learner& l) {
                  const auto control = std::make_shared<RunControl>();
                  l.add(control);
                  l.add<LambdaCallback>({.on_batch_end = [control](Learner& l) {
                    // The checkpoint of the same batch already includes it.
                    if (l.state().training && l.state().iteration == 8) {
                      control->set_learning_rates(1e-3);
                    }
                  }});
                }},
        Program{
            .name = "rates_set_with_a_torch_scheduler",
            .set_up =
                [](Learner& l) {
                  l.add(std::make_shared<TorchScheduler>(
                      [](torch::optim::Optimizer& optimizer) {
                        return std::make_unique<torch::optim::StepLR>(
                            optimizer,
                            1,
                            0.5);
                      }));
                  l.add(at_epoch_begin(1, [](Learner& l) {
                    l.set_learning_rates(3e-3);
                  }));
                }},
        Program{
            .name = "stop_after_n_batches_in_each_fit",
            .train =
                [](Learner& l) {
                  for (int i = 0; i < 3; ++i) {
                    l.fit(2, 1e-2, {std::make_shared<StopAfterNBatches>(6)});
                  }
                }},
        Program{
            .name = "unfreezes_during_training",
            .set_up =
                [](Learner& l) {
                  l.split({"4"}).freeze();
                  l.add(at_epoch_begin(1, [](Learner& l) { l.unfreeze(); }));
                },
            .train = [](Learner& l) { l.fit(2, 1e-2).fit(1, 1e-2); }},
        Program{.name = "noise_in_evaluation", .net = noisy_net},
        Program{
            .name = "stops_by_a_training_metric",
            .set_up =
                [](Learner& l) {
                  l.add<TrainMetrics>();
                  l.add<EarlyStopping>(
                      {.monitor = "train_accuracy", .min_delta = 0.02});
                }},
        Program{
            .name = "reduces_rates_by_a_training_metric",
            .set_up =
                [](Learner& l) {
                  l.add<TrainMetrics>();
                  l.add<ReduceLROnPlateau>(
                      {.monitor = "train_accuracy", .min_delta = 0.05});
                }},
        Program{
            .name = "loss_scale_factors_that_are_not_powers_of_two",
            .set_up =
                [](Learner& l) {
                  l.to_amp(
                      {.dtype = torch::kHalf,
                       .scaler = GradScalerOptions{
                           .growth_factor = 1.3,
                           .backoff_factor = 0.7,
                           .growth_interval = 2}});
                }},
        Program{
            .name = "removes_clipping",
            .set_up =
                [](Learner& l) {
                  l.add<GradientClip>(1e-3);
                  l.add(at_epoch_begin(1, [](Learner& l) {
                    l.remove(*l.find<GradientClip>());
                  }));
                }},
        Program{
            .name = "removes_clipping_in_an_earlier_fit",
            .set_up =
                [](Learner& l) {
                  l.add<GradientClip>(1e-3);
                  l.add(at_epoch_begin(0, [](Learner& l) {
                    const auto clip = l.find<GradientClip>();
                    if (clip) l.remove(*clip);
                  }));
                },
            .train =
                [](Learner& l) {
                  l.fit_one_cycle(1, 1e-2).fit(1, 1e-2).fit(1, 1e-2);
                }},
        Program{
            .name = "unfreezes_with_a_layer_frozen_by_hand",
            .set_up =
                [](Learner& l) {
                  l.model().parameters()[0].tensor.requires_grad_(false);
                  l.split({"1", "4"}).freeze();
                  l.add(at_epoch_begin(1, [](Learner& l) { l.freeze_to(1); }));
                },
            .train =
                [](Learner& l) { l.fit(2, 1e-2).unfreeze().fit(1, 1e-2); }},
        Program{
            .name = "freezes_in_an_earlier_fit",
            .set_up =
                [](Learner& l) {
                  l.split({"4"});
                  l.add(at_epoch_begin(1, [](Learner& l) { l.freeze(); }));
                },
            .train =
                [](Learner& l) { l.fit(2, 1e-2).unfreeze().fit(1, 1e-2); }},
        Program{
            .name = "removes_limit_batches",
            .set_up =
                [](Learner& l) {
                  l.add<LimitBatches>({.train = 3});
                  l.add(at_epoch_begin(2, [](Learner& l) {
                    l.remove(*l.find<LimitBatches>());
                  }));
                }}),
    [](const auto& info) { return info.param.name; });

// ---- What is rejected, and what is allowed ----

class ResumeErrors : public testing::Test {
 protected:
  ResumeErrors() {
    learn->add<SaveCheckpoint>({.folder = run, .durable = false});
    learn->fit(2, 1e-2);
  }

  Program program{"fp32"};
  TempFolder folder;
  fs::path run = folder / "run";
  std::unique_ptr<Learner> learn = make_learner(program);
};

TEST_F(ResumeErrors, TrainsNoFurtherIfTheRunIsComplete) {
  const auto again = make_learner(program);
  const auto written = fs::last_write_time(run / "step_12" / "MANIFEST");
  again->resume(run);
  again->add<SaveCheckpoint>({.folder = run, .durable = false});
  again->fit(2, 1e-2);
  EXPECT_EQ(again->state().iteration, 12);
  EXPECT_EQ(again->state().result, FitResult::completed);
  EXPECT_EQ(fs::last_write_time(run / "step_12" / "MANIFEST"), written);
  expect_same_end(*again, *learn);
}

TEST_F(ResumeErrors, FallsBackToAnOlderCheckpointIfTheNewestIsDamaged) {
  auto bytes = read_file(run / "step_12" / "model.safetensors");
  bytes[bytes.size() / 2] ^= 1;
  write_file(run / "step_12" / "model.safetensors", bytes);
  auto sink = std::make_shared<MemorySink>();
  Learner again(
      point_data(200, 50, {.batch_size = 32, .seed = 3, .workers = 0}),
      dropout_net(),
      {.metrics = {accuracy()}, .seed = 11, .sink = sink});
  again.resume(run).fit(2, 1e-2);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("step_12"), std::string::npos);
  EXPECT_NE(sink->warnings[0].find("SHA-256"), std::string::npos);
  expect_same_end(again, *learn);
}

TEST_F(ResumeErrors, NamesTheDifferencesAndLeavesTheLearnerUnchanged) {
  Learner other(
      point_data(100, 50, {.batch_size = 16, .seed = 3, .workers = 0}),
      dropout_net(),
      quiet({.seed = 12}));
  const Tensors before = parameters_of(other);
  expect_error<CheckpointError>(
      [&] { other.resume(run); },
      {"samples was 200, is 100", "batch size was 32, is 16", "allow_change"});
  EXPECT_TRUE(all_equal(parameters_of(other), before));
  other.resume(run, {.allow_change = true});
  EXPECT_TRUE(all_equal(parameters_of(other), parameters_of(*learn)));
}

TEST_F(ResumeErrors, RejectsDifferentDataOfTheSameSize) {
  DataBunch data =
      point_data(200, 50, {.batch_size = 32, .seed = 3, .workers = 0});
  data.train = std::make_shared<DataLoader>(
      points(200, /*seed=*/9),
      data.train->options());
  Learner other(data, dropout_net(), quiet({.seed = 11}));
  const Tensors before = parameters_of(other);
  expect_error<CheckpointError>(
      [&] { other.resume(run); },
      {"fingerprint of the data was", "allow_change"});
  EXPECT_TRUE(all_equal(parameters_of(other), before));
}

TEST_F(ResumeErrors, RejectsDifferentRatesAndEpochsWhenFitBegins) {
  const auto other = make_learner(program);
  other->resume(run);
  expect_error<CheckpointError>(
      [&] { other->fit(5, 1e-3); },
      {"epochs was 2, is 5", "learning rates was 0.01, is 0.001"});
  EXPECT_FALSE(other->state().is_fitting);
}

TEST_F(ResumeErrors, RejectsADifferentModelAndKeepsIt) {
  for (const int64_t width : {2, 16}) {
    Learner other(
        point_data(200, 50, {.batch_size = 32, .seed = 3, .workers = 0}),
        torch::nn::Sequential(torch::nn::Linear(2, width)),
        quiet());
    const Tensors before = parameters_of(other);
    expect_error<CheckpointError>(
        [&] { other.resume(run); },
        {"a different model",
         width == 2 ? "none of its tensors" : "2 loaded, 7 unexpected",
         "Learner::load"});
    EXPECT_TRUE(all_equal(parameters_of(other), before));
  }
}

TEST_F(ResumeErrors, RejectsADifferentOptimizerAndKeepsIt) {
  Program sgd{"sgd"};
  sgd.optimizer = optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  const auto other = make_learner(sgd);
  const Tensors before = parameters_of(*other);
  expect_error<CheckpointError>(
      [&] { other->resume(run); },
      {"optimizer was tern::optim::AdamW, is ", "torch::optim::SGD"});
  EXPECT_TRUE(all_equal(parameters_of(*other), before));
}

TEST_F(ResumeErrors, ReportsThatAFolderHasNoCheckpoint) {
  const auto other = make_learner(program);
  EXPECT_FALSE(has_checkpoint(folder / "none"));
  expect_error<CheckpointError>(
      [&] { other->resume(folder / "none"); },
      {"none", "no checkpoint"});
}

TEST_F(ResumeErrors, ASecondSaveOfAStepHasTheCurrentWeights) {
  learn->save_checkpoint(folder / "again");
  const StateDict first = learn->state_dict();
  StateDict other;
  for (const auto& entry : first) {
    const torch::Tensor& tensor = entry.value();
    other.insert(
        entry.key(),
        tensor.is_floating_point() ? torch::full_like(tensor, 7.)
                                   : tensor.clone());
  }
  learn->load_state_dict(other);
  learn->save_checkpoint(folder / "again");
  const auto again = make_learner(program);
  again->resume(folder / "again");
  EXPECT_EQ(again->state_dict()["0.weight"][0][0].item<float>(), 7);
  EXPECT_TRUE(has_checkpoint(folder / "again" / "step_12.replaced-1"));
}

TEST_F(ResumeErrors, IsNotConsumedByLrFind) {
  const auto again = make_learner(program);
  again->resume(run);
  again->lr_find();
  again->fit(2, 1e-2);
  EXPECT_EQ(again->state().iteration, 12);
}

TEST_F(ResumeErrors, CanTrainLongerIfChangesAreAllowed) {
  const auto again = make_learner(program);
  again->resume(run, {.allow_change = true}).fit(3, 1e-2);
  const auto whole = make_learner(program);
  whole->fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*again), parameters_of(*whole)));
}

TEST_F(ResumeErrors, NamesADifferentWeightDecay) {
  learn = std::make_unique<Learner>(
      point_data(200, 50, {.batch_size = 32, .seed = 3, .workers = 0}),
      dropout_net(),
      quiet({.weight_decay = 0.5, .seed = 11}));
  expect_error<CheckpointError>(
      [&] { learn->resume(run); },
      {"weight decay was 0.01, is 0.5"});
}

TEST_F(ResumeErrors, WithAllowChangeTheNewRatesAndWeightDecayApply) {
  Learner changed(
      point_data(200, 50, {.batch_size = 32, .seed = 3, .workers = 0}),
      dropout_net(),
      quiet({.metrics = {accuracy()}, .weight_decay = 0.5, .seed = 11}));
  changed.resume(run, {.allow_change = true});
  changed.fit(4, 1e-4);
  const auto& rates = changed.recorder().learning_rates();
  ASSERT_EQ(rates.size(), 24U);
  EXPECT_EQ(rates[11], 1e-2);
  EXPECT_EQ(rates[12], 1e-4);
  EXPECT_EQ(rates[23], 1e-4);
  EXPECT_EQ(
      optim::weight_decay(changed.optimizer().param_groups()[0].options()),
      0.5);
}

TEST_F(ResumeErrors, ContinuesFromACheckpointBetweenTwoFits) {
  learn->save_checkpoint(folder / "between");
  learn->fit(1, 1e-3);
  const auto again = make_learner(program);
  again->resume(folder / "between");
  again->fit(2, 1e-2);
  again->fit(1, 1e-3);
  expect_same_end(*again, *learn);
}

// The report and the plots of a resumed program then show the whole run.
TEST_F(ResumeErrors, RestoresTheHistoryOfCompletedFits) {
  learn->save_checkpoint(folder / "between");
  const auto again = make_learner(program);
  again->resume(folder / "between").fit(2, 1e-2);
  EXPECT_EQ(again->state().iteration, 12);
  EXPECT_EQ(again->recorder().losses(), learn->recorder().losses());
  EXPECT_EQ(again->recorder().epochs().size(), 2u);
}

TEST_F(ResumeErrors, SavesItsPositionBeforeItHasContinued) {
  learn->save_checkpoint(folder / "between");
  const auto read_by = [&](const fs::path& from, const fs::path& to, int fits) {
    const auto reader = make_learner(program);
    reader->resume(folder / from);
    for (int i = 0; i < fits; ++i) reader->fit(2, 1e-2);
    reader->save_checkpoint(folder / to);
  };
  read_by("between", "before_the_fit", 0);
  read_by("before_the_fit", "after_the_fit", 1);
  learn->fit(1, 1e-3);
  const auto again = make_learner(program);
  again->resume(folder / "after_the_fit").fit(2, 1e-2).fit(1, 1e-3);
  EXPECT_EQ(again->recorder().losses().size(), 18u);
  expect_same_end(*again, *learn);
}

TEST_F(ResumeErrors, RejectsSkippingAFitOfADifferentLength) {
  learn->lr_find();
  const auto fails = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_begin = [](Learner&) { throw std::runtime_error("fault"); }});
  EXPECT_THROW(learn->fit(3, 1e-2, {fails}), std::runtime_error);
  learn->save_checkpoint(folder / "between");
  const auto again = make_learner(program);
  again->resume(folder / "between");
  expect_error<CheckpointError>(
      [&] { again->fit(5, 1e-2); },
      {"epochs was 2, is 5", "allow_change"});
  EXPECT_EQ(again->fit(2, 1e-2).state().iteration, 12);
}

TEST(Resume, WorksWithLimitedBatchesAndFindsFoldersInTheLearnersPath) {
  const TempFolder root;
  const auto make = [&](int64_t batches) {
    auto learn = std::make_unique<Learner>(
        point_data(),
        point_net(),
        quiet({.path = root.path() / "out"}));
    learn->add<LimitBatches>({.train = batches});
    return learn;
  };
  const auto expected = make(4);
  expected->fit(2);
  const auto killed = make(4);
  killed->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
    if (!l.state().training || l.state().iteration != 3) return;
    l.save_checkpoint("run");
    throw std::runtime_error("killed");
  }});
  EXPECT_THROW(killed->fit(2), std::runtime_error);
  EXPECT_TRUE(has_checkpoint(root.path() / "out" / "run"));
  EXPECT_TRUE(has_checkpoint(*killed, "run"));
  EXPECT_FALSE(has_checkpoint("run"));
  EXPECT_FALSE(has_checkpoint(*killed, "none"));
  const auto resumed = make(4);
  resumed->resume("run", {.if_exists = true}).fit(2);
  expect_same_end(*resumed, *expected);
  const auto other = make(5);
  other->resume("run");
  expect_error<CheckpointError>(
      [&] { other->fit(2); },
      {"batches in an epoch was 4, is 5"});
}

TEST(Resume, WarnsIfTheCheckpointIsInTheCurrentFolderOnly) {
  const TempFolder root;
  const fs::path before = fs::current_path();
  fs::current_path(root.path());
  Learner first(point_data(), point_net(), quiet());
  first.fit(1).save_checkpoint("run");
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.path = "out", .sink = sink});
  learn.resume("run", {.if_exists = true});
  fs::current_path(before);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(
      sink->warnings[0].find(
          "no checkpoint in out/run, but there is one in run"),
      std::string::npos)
      << sink->warnings[0];
}

}  // namespace
}  // namespace tern::resume_test
