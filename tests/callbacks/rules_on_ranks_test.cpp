// Rules that the loop enforces so that callbacks need not, on several ranks.
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/distributed.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/run_control.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/comes_true.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/in_order.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::rules_on_ranks_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

const DistributedOptions kQuick = {
    .group = {.timeout = std::chrono::seconds(30)}};

DataBunch data_of(int64_t batch_size, int64_t train = 256, bool drop = true) {
  DataBunch data =
      point_data(train, 101, {.batch_size = batch_size, .workers = 0});
  DataLoaderOptions options = data.train->options();
  options.drop_last = drop;
  data.train = std::make_shared<DataLoader>(data.train->dataset_ptr(), options);
  return data;
}

LearnerOptions with_sgd() {
  return quiet(
      {.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1)),
       .metrics = {accuracy()}});
}

void expect_same_on_all(Learner& learn, const std::string& bytes) {
  const auto group = learn.find<Distributed>()->group();
  for (const std::string& other : group->all_gather(bytes)) {
    EXPECT_TRUE(other == bytes);
  }
}

// Collects the bytes of the weights after each step, before any broadcast can
// make them equal.
class EachStep final : public Callback {
 public:
  void on_batch_end(Learner& learn) override {
    if (!learn.state().training) return;
    bytes += bytes_of_parameters(learn);
    for (const double rate : learn.learning_rates()) {
      bytes += std::to_string(rate);
    }
  }
  int order() const override { return callback_order::kLast; }

  std::string bytes;

 private:
  static std::string bytes_of_parameters(Learner& learn) {
    std::string result;
    for (const ModelTensor& p : learn.model().parameters()) {
      const torch::Tensor tensor = p.tensor.detach().contiguous();
      result.append(
          static_cast<const char*>(tensor.const_data_ptr()),
          tensor.nbytes());
    }
    return result;
  }
};

TEST(RulesOnRanks, ALoggedValueIsTheMeanOverRanks) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), point_net(), with_sgd());
    learn.to_distributed(kQuick);
    const auto rank = static_cast<double>(environment.rank);
    learn.add<LambdaCallback>(
        {.on_batch_end =
             [&](Learner& l) {
               l.log(
                   l.state().training ? "in_training" : "in_validation",
                   rank);
             },
         .on_epoch_end = [&](Learner& l) { l.log("at_end", 2 * rank); }});
    learn.fit(1);
    EXPECT_EQ(learn.state()["in_training"], 0.5);
    EXPECT_NEAR(learn.state()["in_validation"], 50 / 101., 1e-12);
    EXPECT_EQ(learn.state()["at_end"], 1);
  });
}

// Trains on two ranks and expects equal weights and learning rates after each
// step.
void expect_equal_steps(
    const std::function<void(Learner&, int64_t rank)>& set_up,
    const std::function<void(Learner&)>& train) {
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16, 251, false), point_net(), with_sgd());
    learn.to_distributed(kQuick);
    set_up(learn, environment.rank);
    const auto each = std::make_shared<EachStep>();
    learn.add(each);
    train(learn);
    EXPECT_FALSE(each->bytes.empty());
    expect_same_on_all(learn, each->bytes);
  });
}

// ---- When a step is taken ----

// Trains two epochs and expects the weights of a single process, and identical
// bits on all ranks after each step.
void expect_trains_as(Learner& alone, Learner& learn) {
  const auto each = std::make_shared<EachStep>();
  learn.add(each);
  learn.fit(2, 0.1);
  const Tensors a = parameters_of(learn), b = parameters_of(alone);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-6)) << i;
  }
  expect_same_on_all(learn, each->bytes);
}

TEST(RulesOnRanks, AnUnevenTailOfAnAccumulationWindowIsWeightedCorrectly) {
  // 251 samples: 8 batches of 16 on two ranks, the last of 14 and 13 samples;
  // windows of 3, 3 and 2 batches.
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner alone(data_of(96, 251, false), plain_net(), with_sgd());
    alone.fit(2, 0.1);
    Learner learn(data_of(16, 251, false), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    learn.add<GradientAccumulation>({.batches = 3});
    expect_trains_as(alone, learn);
  });
}

// In the first batch, only rank 0 has targets that count; in the last batch, no
// rank has.
DataBunch partly_ignored(int64_t batch_size) {
  const torch::Tensor x =
      torch::randn({72, 2}, at::detail::createCPUGenerator(1));
  torch::Tensor y = (x.sum(1) > 0).to(torch::kLong);
  y.narrow(0, 8, 8).fill_(-100);
  y.narrow(0, 21, 5).fill_(-100);
  y.narrow(0, 64, 8).fill_(-100);
  return in_order(x, y, batch_size);
}

TEST(RulesOnRanks, ALossIsWeightedByItsCountOverAllRanks) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    for (const int64_t batches : {1, 2}) {
      LearnerOptions options = with_sgd();
      options.weight_decay = 0;
      options.loss = torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().weight(
              torch::tensor({1.f, 3.f})));
      Learner alone(partly_ignored(16 * batches), plain_net(), options);
      alone.fit(2, 0.1);
      Learner learn(partly_ignored(8), plain_net(), options);
      learn.to_distributed(kQuick);
      if (batches > 1) learn.add<GradientAccumulation>({.batches = batches});
      expect_trains_as(alone, learn);
      const EpochRecord& epoch = learn.recorder().epochs().back();
      const EpochRecord& of_one = alone.recorder().epochs().back();
      EXPECT_NEAR(epoch.valid_loss, of_one.valid_loss, 1e-5);
      if (batches == 1) EXPECT_NEAR(epoch.train_loss, of_one.train_loss, 1e-2);
      EXPECT_TRUE(std::isfinite(epoch.train_loss));
    }
  });
}

TEST(RulesOnRanks, WeightsAreEqualAfterEachStepInEveryPrecision) {
  const std::vector<std::function<void(Learner&)>> modes = {
      [](Learner&) {},
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
      [](Learner& l) { l.to_bf16(); },
      [](Learner& l) { l.to_amp(); },
      [](Learner& l) { l.add<GradientAccumulation>({.batches = 3}); },
      [](Learner& l) { l.add<GradientAccumulation>({.samples = 40}); }};
  for (const auto& mode : modes) {
    expect_equal_steps(
        [&](Learner& learn, int64_t) { mode(learn); },
        [](Learner& learn) { learn.fit(2, 1e-2); });
  }
}

TEST(RulesOnRanks, ACheckpointInAnOpenWindowIsRejected) {
  const TempFolder folder;
  expect_ranks(2, [&](const LaunchEnvironment&) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    learn.add<GradientAccumulation>({.batches = 3});
    learn.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
      if (!l.state().accumulating) return;
      expect_error<c10::Error>(
          [&] { l.save_checkpoint(folder / "run"); },
          {"gradients are being accumulated", "state().accumulating"});
    }});
    learn.fit(1, 0.1);
  });
}

// ---- Rank 0 writes for all ----

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(RulesOnRanks, ACheckpointSavedByAllRanksIsWrittenOnceAndComplete) {
  for (const bool shard : {false, true}) {
    const TempFolder folder;
    expect_ranks(2, [&](const LaunchEnvironment&) {
      DistributedOptions options = kQuick;
      options.shard_optimizer = shard;
      Learner learn(data_of(16), point_net(), quiet());
      learn.to_distributed(options);
      learn.add<LambdaCallback>({.on_epoch_end = [&](Learner& l) {
        l.save_checkpoint(folder / "run");
      }});
      learn.fit(2, 1e-2);
      learn.save_checkpoint(folder / "after");
      // Every rank can read the checkpoint and find the run that it belongs to.
      std::vector<std::string> problems;
      const Checkpoint saved = read_checkpoint(folder / "after", problems);
      EXPECT_EQ(saved.run, run_id(learn));
      int64_t moments = 0;
      for (const auto& entry : saved.optimizer) {
        moments += entry.key().find("exp_avg_sq") != std::string::npos;
      }
      EXPECT_EQ(moments, 6);
      EXPECT_EQ(run_of_checkpoint(folder / "run" / "step_8"), saved.run);
    });
    EXPECT_EQ(
        names_in(folder / "run"),
        (std::set<std::string>{"latest", "step_16", "step_8"}));
  }
}

TEST(RulesOnRanks, AModelSavedByAllRanksCanBeLoadedByAll) {
  const TempFolder folder;
  expect_ranks(3, [&](const LaunchEnvironment&) {
    Learner learn(data_of(16), point_net(), quiet({.path = folder.path()}));
    learn.to_distributed(kQuick).fit(1, 1e-2);
    for (int i = 0; i < 10; ++i) {
      learn.save("end");
      learn.load("end");
    }
    expect_same_on_all(learn, bytes_of(learn));
  });
}

TEST(RulesOnRanks, AWriteErrorOfRankZeroIsReportedOnAllRanks) {
  const TempFolder folder;
  write_file(folder / "file", "in the way");
  expect_ranks(2, [&](const LaunchEnvironment&) {
    Learner learn(data_of(16), plain_net(), quiet({.path = folder / "file"}));
    learn.to_distributed(kQuick).fit(1, 0.1);
    expect_error<DataError>(
        [&] { learn.save_checkpoint("run"); },
        {"file", "cannot"});
    expect_error<DataError>([&] { learn.save("end"); }, {"file", "cannot"});
    learn.fit(1, 0.1);  // still in sync
    expect_same_on_all(learn, bytes_of(learn));
    learn.add<SaveCheckpoint>({.folder = "run"});
    expect_error<DataError>([&] { learn.fit(1, 0.1); }, {"file", "cannot"});
  });
}

// The last save of a fit fails at the end of the fit.
TEST(RulesOnRanks, AFailureOfTheLastSaveEndsTheFitOnAllRanks) {
  const TempFolder folder;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), quiet());
    learn.to_distributed(kQuick);
    learn.add<SaveCheckpoint>({.folder = folder / "run"});
    learn.add<LambdaCallback>({.on_epoch_end = [&](Learner&) {
      if (environment.rank != 0) return;
      std::filesystem::remove_all(folder / "run");
      write_file(folder / "run", "in the way");
    }});
    expect_error<DataError>([&] { learn.fit(1, 0.1); }, {"run", "cannot"});
  });
}

// With a sharded optimizer, all ranks take part in each checkpoint.
TEST(RulesOnRanks, AFailureOfASaveEndsTheFitOnAllRanks) {
  for (const bool is_divided : {false, true}) {
    const TempFolder folder;
    expect_ranks(3, [&](const LaunchEnvironment& environment) {
      Learner learn(data_of(16), plain_net(), with_sgd());
      DistributedOptions options = kQuick;
      options.shard_optimizer = is_divided;
      learn.to_distributed(options);
      learn.add<SaveCheckpoint>({.folder = folder / "run", .every_steps = 1});
      learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
        if (environment.rank != 0 || l.state().iteration != 2) return;
        // Renamed rather than removed, because a save may be writing to it.
        std::filesystem::rename(folder / "run", folder / "elsewhere");
        write_file(folder / "run", "in the way");
      }});
      expect_error<DataError>([&] { learn.fit(2, 0.1); }, {"run"});
    });
  }
}

TEST(RulesOnRanks, ACheckpointRequestedOnOneRankIsSavedByAll) {
  const TempFolder folder;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), quiet());
    learn.to_distributed(kQuick);
    const auto control = std::make_shared<RunControl>();
    learn.add(control).add<GradientAccumulation>({.batches = 4});
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (environment.rank == 1 && l.state().iteration == 1) {
        control->request_checkpoint(folder / "run");
      }
    }});
    learn.fit(1, 0.1);
    EXPECT_EQ(control->checkpoints_written(), 1);
  });
  EXPECT_EQ(
      names_in(folder / "run"),
      (std::set<std::string>{"latest", "step_4"}));
}

// Pauses rank 1 after its second batch and then requests a checkpoint on rank
// 2. Within an accumulation window, the pause takes effect at its end.
void expect_common_pause(
    const std::function<void(Learner&, RunControl&, int64_t rank)>& end,
    int64_t steps,
    int64_t window) {
  const TempFolder folder;
  SharedCount paused, saved, looked;
  expect_ranks(3, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), quiet());
    learn.to_distributed(kQuick);
    const auto control = std::make_shared<RunControl>();
    learn.add(control).add<GradientAccumulation>({.batches = window});
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      const bool is_turn = l.state().iteration == (window == 1 ? 1 : 0);
      if (environment.rank == 1 && is_turn) control->pause();
    }});
    std::jthread other([&] {
      EXPECT_TRUE(comes_true([&] { return control->is_paused(); }));
      paused.add_one();
      paused.wait_for(3);
      if (environment.rank == 2) control->request_checkpoint(folder / "run");
      EXPECT_TRUE(
          comes_true([&] { return control->checkpoints_written() == 1; }));
      saved.add_one();
      saved.wait_for(3);
      EXPECT_TRUE(control->is_paused());
      looked.add_one();
      looked.wait_for(3);
      end(learn, *control, environment.rank);
    });
    learn.fit(1, 0.1);
    other.join();
    EXPECT_FALSE(control->is_paused());
    EXPECT_EQ(learn.state().iteration, steps);
    expect_same_on_all(learn, bytes_of(learn));
  });
  EXPECT_EQ(
      names_in(folder / "run"),
      (std::set<std::string>{"latest", "step_2"}));
}

TEST(RulesOnRanks, APauseOfOneRankPausesAllUntilItResumes) {
  for (const int64_t window : {1, 2}) {
    expect_common_pause(
        [](Learner&, RunControl& control, int64_t rank) {
          if (rank == 1) control.resume();
        },
        5,
        window);
  }
}

TEST(RulesOnRanks, AStopOfOneRankEndsThePauseOfAll) {
  expect_common_pause(
      [](Learner& learn, RunControl&, int64_t rank) {
        if (rank == 0) learn.request_stop();
      },
      2,
      1);
}

TEST(RulesOnRanks, CheckpointsRequestedOnSeveralRanksAtOnceAreAllWritten) {
  const TempFolder folder;
  expect_ranks(3, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), quiet());
    learn.to_distributed(kQuick);
    const auto control = std::make_shared<RunControl>();
    learn.add(control);
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (l.state().iteration != 1) return;
      control->request_checkpoint(
          folder / (environment.rank == 1 ? "of one" : "of two"));
    }});
    learn.fit(1, 0.1);
    EXPECT_EQ(control->checkpoints_written(), 2);
  });
  for (const auto& [name, step] :
       {std::pair("of two", "step_2"), {"of one", "step_3"}}) {
    EXPECT_EQ(names_in(folder / name), (std::set<std::string>{"latest", step}));
  }
}

// ---- Decisions are shared ----

TEST(RulesOnRanks, AStepSkippedByOneRankIsSkippedByAll) {
  for (const bool before_backward : {true, false}) {
    expect_equal_steps(
        [&](Learner& learn, int64_t rank) {
          const LambdaCallbackOptions::Function skip = [rank](Learner& l) {
            if (l.state().batch % 3 == rank) l.state().skip_step = true;
          };
          LambdaCallbackOptions functions;
          (before_backward ? functions.on_backward_begin : functions.on_step) =
              skip;
          learn.add<LambdaCallback>(functions);
        },
        [](Learner& learn) { learn.fit(2, 0.1); });
  }
}

TEST(RulesOnRanks, ANaNOnOneRankEndsTheFitOnAllRanks) {
  expect_equal_steps(
      [](Learner& learn, int64_t rank) {
        learn.add<TerminateOnNaN>();
        learn.add<LambdaCallback>({.on_loss_begin = [rank](Learner& l) {
          if (l.state().training && rank == 1 && l.state().batch == 3) {
            l.state().outputs[0] = l.state().outputs[0] * NAN;
          }
        }});
      },
      [](Learner& learn) {
        learn.fit(2, 0.1);
        EXPECT_EQ(learn.state().iteration, 4);
      });
}

TEST(RulesOnRanks, AStopOfOneRankEndsAllRanksAtTheSameStep) {
  for (const bool epoch_end : {true, false}) {
    expect_equal_steps(
        [&](Learner& learn, int64_t rank) {
          const LambdaCallbackOptions::Function stop = [rank](Learner& l) {
            if (rank == 1) l.state().stop_training = true;
          };
          LambdaCallbackOptions functions;
          if (epoch_end) {
            functions.on_epoch_end = stop;
          } else {
            functions.on_batch_begin = [stop](Learner& l) {
              if (l.state().training && l.state().batch == 4) stop(l);
            };
          }
          learn.add<GradientAccumulation>({.batches = 3});
          learn.add<LambdaCallback>(functions);
        },
        [&](Learner& learn) {
          learn.fit(3, 0.1);
          EXPECT_EQ(learn.state().iteration, epoch_end ? 8 : 5);
        });
  }
}

TEST(RulesOnRanks, LearningRatesComeFromRankZero) {
  expect_equal_steps(
      [](Learner& learn, int64_t rank) {
        learn.add<LambdaCallback>({.on_batch_begin = [rank](Learner& l) {
          if (!l.state().training) return;
          l.set_learning_rates(rank == 0 ? 0.05 : 0.5);
        }});
      },
      [](Learner& learn) {
        learn.fit(1, 0.1);
        EXPECT_EQ(learn.learning_rates()[0], 0.05);
      });
}

// ReduceLROnPlateau monitors the training loss over all ranks.
TEST(RulesOnRanks, AllRanksSeeAPlateauOfTheTrainingLossAlike) {
  expect_equal_steps(
      [](Learner& learn, int64_t rank) {
        learn.add<ReduceLROnPlateau>(
            {.monitor = "train_loss", .min_delta = 0.02, .patience = 1});
        // The losses of the individual ranks develop differently.
        learn.add<LambdaCallback>({.on_loss_begin = [rank](Learner& l) {
          if (!l.state().training || rank == 0) return;
          l.state().outputs[0] =
              l.state().outputs[0] * (1 + 0.2 * l.state().epoch);
        }});
      },
      [](Learner& learn) {
        learn.fit(6, 0.1);
        std::string seen;
        for (const EpochRecord& epoch : learn.recorder().epochs()) {
          seen += std::to_string(epoch.train_loss) + " ";
        }
        expect_same_on_all(learn, seen);
      });
}

TEST(RulesOnRanks, LrFindSuggestsTheSameOnAllRanks) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    const LrFind found = learn.lr_find({.num_it = 40});
    std::string text = std::to_string(found.valley.value_or(0));
    for (const double loss : found.losses) text += std::to_string(loss) + " ";
    expect_same_on_all(learn, text);
  });
}

// ---- All ranks start alike ----

TEST(RulesOnRanks, ACheckpointFoundByOnlyOneRankIsRejected) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = std::make_unique<Learner>(
        data_of(16),
        plain_net(),
        quiet({.path = folder.path()}));
    learn->to_distributed(kQuick);
    return learn;
  };
  expect_ranks(2, [&](const LaunchEnvironment&) {
    const auto learn = make();
    learn->add<SaveCheckpoint>({.folder = "run"}).fit(1, 1e-2);
  });
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto learn = make();
    if (environment.rank == 1) learn->resume("run");
    expect_error<DistributedError>(
        [&] { learn->fit(2, 1e-2); },
        {"checkpoint to resume from", "none", "step 8 of run"});
  });
}

TEST(RulesOnRanks, WeightsThatDifferBeforeTheFirstStepAreRejected) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    // Runs after the weights of rank 0 were broadcast.
    learn.add<LambdaCallback>(
        {.on_train_begin =
             [&](Learner& l) {
               const torch::NoGradGuard no_grad;
               l.model().parameters()[0].tensor.mul_(1 + environment.rank);
             },
         .order = callback_order::kLast + 1});
    expect_error<DistributedError>(
        [&] { learn.fit(1, 0.1); },
        {"before the first step",
         "the weights of rank 1 differ",
         "1 of 4",
         "0.weight"});
  });
}

// ---- Evaluation is local ----

TEST(RulesOnRanks, OneRankCanPredictAlone) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), point_net(), with_sgd());
    learn.to_distributed(kQuick);
    learn.add<LambdaCallback>({.on_epoch_end = [&](Learner& l) {
      if (environment.rank != 1) return;
      EXPECT_EQ(l.get_preds().preds.size(0), 101);
      l.predict(torch::zeros({2}));
      l.validate();
    }});
    learn.fit(2, 0.1);
    expect_same_on_all(learn, bytes_of(learn));
    if (environment.rank == 0) learn.validate();
  });
}

TEST(RulesOnRanks, ValidateOnTrainingDataCoversAllOfIt) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner alone(data_of(16, 251, false), plain_net(), with_sgd());
    const Validation expected = alone.validate(Split::train);
    Learner learn(data_of(16, 251, false), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    const Validation actual = learn.validate(Split::train);
    EXPECT_EQ(actual.loss, expected.loss);
    EXPECT_EQ(actual["accuracy"], expected["accuracy"]);
  });
}

TEST(RulesOnRanks, SwaUpdatesTheStatisticsOfBatchNorm) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner learn(data_of(16), point_net(), with_sgd());
    learn.to_distributed(kQuick);
    learn.add<Swa>({.start = 0.5}).fit(2, 0.1);
    // Means over the batches of one pass.
    for (const ModelTensor& b : learn.model().buffers()) {
      if (b.name.ends_with("num_batches_tracked")) {
        EXPECT_EQ(b.tensor.item<int64_t>(), 16);
      }
    }
    expect_same_on_all(learn, bytes_of(learn));
  });
}

TEST(RulesOnRanks, LimitsOfAnEpochCountBatchesPerRank) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    dry_run(learn);
    EXPECT_EQ(learn.state().iteration, 0);
    learn.fit(
        2,
        0.1,
        {std::make_shared<LimitBatches>(
            LimitBatches::Options{.train = 3, .valid = 1})});
    EXPECT_EQ(learn.state().iteration, 6);
    learn.fit(2, 0.1, {std::make_shared<OverfitBatches>(2)});
    EXPECT_EQ(learn.state().iteration, 10);
    expect_same_on_all(learn, bytes_of(learn));
  });
}

// ---- Changes are announced once ----

TEST(RulesOnRanks, EmaIsEqualOnAllRanksInASecondFit) {
  const TempFolder folder;
  for (const bool saves : {false, true}) {
    expect_ranks(2, [&](const LaunchEnvironment&) {
      Learner learn(
          data_of(16),
          point_net(),
          quiet({.metrics = {accuracy()}, .path = folder.path()}));
      learn.to_distributed(kQuick);
      learn.add<Ema>({.decay = 0.9});
      if (saves) learn.add<SaveModel>();
      const auto each = std::make_shared<EachStep>();
      learn.add(each);
      learn.fit(2, 1e-2).fit(2, 1e-2);
      expect_same_on_all(learn, each->bytes);
      expect_same_on_all(learn, bytes_of(learn));
    });
  }
}

}  // namespace
}  // namespace tern::rules_on_ranks_test
