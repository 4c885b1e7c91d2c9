#include "tern/callbacks/saving/save_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <limits>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::save_checkpoint_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int64_t kSteps = 8;  // per epoch of point_data()

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> result;
  for (const fs::path& step : list_checkpoints(folder)) {
    result.push_back(step.filename().string());
  }
  return result;
}

struct Training {
  explicit Training(SaveCheckpointOptions options, uint64_t net = 7)
      : learn(point_data(), point_net(net), {.sink = sink}) {
    options.folder = folder / "run";
    options.durable = false;
    saver = std::make_shared<SaveCheckpoint>(options);
    learn.add(saver);
  }

  TempFolder folder;
  std::shared_ptr<MemorySink> sink = std::make_shared<MemorySink>();
  Learner learn;
  std::shared_ptr<SaveCheckpoint> saver;
};

TEST(SaveCheckpoint, SavesAtTheEndOfEachEpochAndKeepsThree) {
  Training run({});
  run.learn.fit(5, 1e-2);
  EXPECT_EQ(
      names(run.folder / "run"),
      (std::vector<std::string>{"step_40", "step_32", "step_24"}));
}

TEST(SaveCheckpoint, SavesEveryNSteps) {
  Training run({.every_epochs = 0, .every_steps = 3, .keep = 0});
  run.learn.fit(1, 1e-2);
  EXPECT_EQ(
      names(run.folder / "run"),
      (std::vector<std::string>{"step_8", "step_6", "step_3"}));
}

TEST(SaveCheckpoint, SavesAgainInASecondFit) {
  Training run({.keep = 0});
  run.learn.fit(1, 1e-2);
  const Tensors first = parameters_of(run.learn);
  run.learn.fit(1, 1e-2);
  EXPECT_EQ(
      names(run.folder / "run"),
      (std::vector<std::string>{"step_16", "step_8"}));
  const Tensors second = parameters_of(run.learn);
  EXPECT_FALSE(torch::equal(first[0], second[0]));
  for (const auto& [name, weights] :
       {std::pair{"step_8", first}, {"step_16", second}}) {
    std::vector<std::string> problems;
    const Checkpoint saved =
        read_checkpoint(run.folder / "run" / name, problems);
    EXPECT_TRUE(torch::equal(saved.model["0.weight"], weights[0])) << name;
  }
}

TEST(SaveCheckpoint, WritesTheRequestedStepWhileWeightsKeepChanging) {
  Training run({.every_epochs = 0, .every_steps = 1, .keep = 0});
  std::vector<Tensors> weights;
  run.learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
        if (l.state().training) weights.push_back(parameters_of(l));
      }});
  run.learn.fit(3, 1e-1);
  ASSERT_EQ(weights.size(), 3 * kSteps);
  for (int64_t step = 1; step <= 3 * kSteps; ++step) {
    std::vector<std::string> problems;
    const Checkpoint saved = read_checkpoint(
        run.folder / "run" / ("step_" + std::to_string(step)),
        problems);
    EXPECT_TRUE(torch::equal(saved.model["0.weight"], weights[step - 1][0]))
        << step;
  }
}

TEST(SaveCheckpoint, RejectsAFolderWithCheckpointsOfADifferentRun) {
  Training run({});
  run.learn.fit(1, 1e-2);
  Learner other(point_data(), point_net(), quiet());
  other.add<SaveCheckpoint>({.folder = run.folder / "run"});
  const Tensors before = parameters_of(other);
  expect_error<CheckpointError>(
      [&] { other.fit(1, 1e-2); },
      {"a different run", "learn.resume"});
  EXPECT_TRUE(all_equal(parameters_of(other), before));
  // After resuming, it is the same run.
  other.resume(run.folder / "run", {.allow_change = true}).fit(2, 1e-2);
  EXPECT_EQ(names(run.folder / "run").front(), "step_16");
}

TEST(SaveCheckpoint, RejectsAFolderThatAnotherRunWritesTo) {
  Training run({});
  Learner other(point_data(), point_net(), quiet());
  other.add<SaveCheckpoint>({.folder = run.folder / "run"});
  run.learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_epoch_begin = [&](Learner&) {
        expect_error<CheckpointError>(
            [&] { other.fit(1, 1e-2); },
            {"process " + std::to_string(::getpid()), "already"});
      }});
  run.learn.fit(1, 1e-2);
}

TEST(SaveCheckpoint, FailsBeforeTheFirstStepIfTheFolderCannotBeCreated) {
  const TempFolder folder;
  write_file(folder / "file", std::string_view("text"));
  Learner learn(point_data(), point_net(), quiet());
  learn.add<SaveCheckpoint>({.folder = folder / "file" / "run"});
  EXPECT_THROW(learn.fit(1, 1e-2), IoError);
  EXPECT_EQ(learn.state().iteration, 0);
}

TEST(SaveCheckpoint, ReportsAFailedSaveByTheEndOfTheFit) {
  Training run({});
  run.learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_begin = [&](Learner& l) {
        if (l.state().iteration != 1) return;
        fs::remove_all(run.folder / "run");
        write_file(run.folder / "run", std::string_view("in the way"));
      }});
  EXPECT_THROW(run.learn.fit(1, 1e-2), IoError);
  EXPECT_FALSE(run.learn.state().is_fitting);
}

TEST(SaveCheckpoint, KeepsTheLastGoodCheckpointWhenWeightsBecomeNaN) {
  Training run({.keep = 1});
  run.learn.fit(1, 1e-2);
  run.learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_loss_begin = [](Learner& l) {
        l.state().outputs[0] =
            l.state().outputs[0] * std::numeric_limits<float>::quiet_NaN();
      }});
  run.learn.fit(1, 1e-2);
  EXPECT_EQ(names(run.folder / "run"), (std::vector<std::string>{"step_8"}));
  ASSERT_FALSE(run.sink->warnings.empty());
  EXPECT_NE(run.sink->warnings[0].find("NaN"), std::string::npos);
}

// ---- Resuming from an earlier step ----

// Resumes a run of 16 steps from step 4, adds gradient clipping, and stops at
// `stop`.
struct Branch {
  explicit Branch(int64_t stop) {
    const auto make = [&](const Sink& to) {
      auto learn = std::make_unique<Learner>(
          point_data(),
          point_net(),
          LearnerOptions{.sink = to});
      learn->add<SaveCheckpoint>(
          {.folder = folder / "run",
           .every_steps = 2,
           .keep = 0,
           .durable = false});
      return learn;
    };
    make(silent())->fit(2, 1e-2);
    learn = make(sink);
    learn->resume(folder / "run" / "step_4");
    stop_at(stop);
    learn->fit(2, 1e-2);
  }

  void stop_at(int64_t stop) {
    learn->add<GradientClip>(0.01).add<LambdaCallback>(
        LambdaCallbackOptions{.on_batch_end = [stop](Learner& l) {
          if (l.state().training && l.state().iteration == stop) {
            l.request_stop();
          }
        }});
  }

  TempFolder folder;
  std::shared_ptr<MemorySink> sink = std::make_shared<MemorySink>();
  std::unique_ptr<Learner> learn;
};

TEST(SaveCheckpoint, ResumesTheLastBranchAfterAStop) {
  Branch branch(8);
  EXPECT_EQ(
      names(branch.folder / "run"),
      (std::vector<std::string>{"step_8", "step_6", "step_4", "step_2"}));
  std::vector<std::string> problems;
  const Checkpoint saved =
      read_checkpoint(branch.folder / "run" / "step_8", problems);
  EXPECT_TRUE(
      torch::equal(saved.model["0.weight"], parameters_of(*branch.learn)[0]));
  Learner again(point_data(), point_net(), quiet());
  again.add<GradientClip>(0.01).resume(branch.folder / "run").fit(2, 1e-2);
  Learner whole(point_data(), point_net(), quiet());
  whole.add<GradientClip>(0.01)
      .resume(branch.folder / "run" / "step_4")
      .fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(again), parameters_of(whole)));
}

TEST(SaveCheckpoint, ReportsReplacedCheckpointsWhichCanBeResumed) {
  Branch branch(8);
  const auto line =
      std::ranges::find_if(branch.sink->lines, [](const std::string& text) {
        return text.find("were moved to") != std::string::npos;
      });
  ASSERT_NE(line, branch.sink->lines.end());
  EXPECT_NE(
      line->find("step_16.replaced-1, step_14.replaced-1"),
      std::string::npos)
      << *line;
  Learner old(point_data(), point_net(), quiet());
  old.resume(branch.folder / "run" / "step_12.replaced-1").fit(2, 1e-2);
  Learner whole(point_data(), point_net(), quiet());
  whole.fit(2, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(old), parameters_of(whole)));
}

// A fit that fails to start, or is killed before it saves, moves no checkpoint
// aside.
TEST(SaveCheckpoint, KeepsLaterCheckpointsUntilItsFirstSave) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = std::make_unique<Learner>(point_data(), point_net(), quiet());
    learn->add<SaveCheckpoint>({.folder = folder / "run", .durable = false});
    return learn;
  };
  make()->fit(2, 1e-2);
  EXPECT_THROW(
      make()->resume(folder / "run" / "step_8").fit(3, 1e-2),
      CheckpointError);
  EXPECT_EQ(
      names(folder / "run"),
      (std::vector<std::string>{"step_16", "step_8"}));
}

TEST(SaveCheckpoint, WritesNothingInLrFind) {
  Training run({.every_steps = 1});
  run.learn.lr_find();
  EXPECT_FALSE(fs::exists(run.folder / "run"));
}

// ---- Stopping ----

// Expects that a run that `stop` stopped and that was resumed gives the same
// result as an uninterrupted run.
void expect_resumes(
    const std::function<void(Learner&)>& stop,
    DataLoaderOptions loader = {.batch_size = 32, .workers = 0}) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = std::make_unique<Learner>(
        point_data(256, 100, loader),
        point_net(),
        quiet());
    learn->add<SaveCheckpoint>(
        {.folder = folder / "run", .every_epochs = 0, .durable = false});
    return learn;
  };
  const auto stopped = make();
  stop(*stopped);
  stopped->fit(3, 1e-2);
  EXPECT_EQ(stopped->state().result, FitResult::interrupted);
  ASSERT_TRUE(has_checkpoint(folder / "run"));
  const auto resumed = make();
  resumed->resume(folder / "run").fit(3, 1e-2);
  EXPECT_EQ(resumed->state().result, FitResult::completed);

  Learner whole(point_data(256, 100, loader), point_net(), quiet());
  whole.fit(3, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*resumed), parameters_of(whole)));
  EXPECT_EQ(resumed->recorder().losses(), whole.recorder().losses());
  EXPECT_EQ(resumed->recorder().epochs().size(), 3u);
}

void stop_in_batch(Learner& learn, int64_t iteration, bool training) {
  learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_loss_begin = [iteration, training](Learner& l) {
        if (l.state().iteration == iteration &&
            l.state().training == training) {
          l.request_stop();
        }
      }});
}

TEST(SaveCheckpoint, SavesWhenAStopIsRequestedInTraining) {
  expect_resumes([](Learner& l) { stop_in_batch(l, 4, true); });
}

TEST(SaveCheckpoint, SavesWhenAStopIsRequestedInTheLastBatchOfAnEpoch) {
  expect_resumes([](Learner& l) { stop_in_batch(l, kSteps - 1, true); });
}

TEST(SaveCheckpoint, SavesWhenAStopIsRequestedInValidation) {
  expect_resumes([](Learner& l) { stop_in_batch(l, kSteps, false); });
}

// Blocks while `is_stuck`, like a disk that hangs.
class StuckDataset final : public Dataset {
 public:
  StuckDataset(std::atomic<bool>& is_asked, std::atomic<bool>& is_stuck)
      : is_asked_(is_asked), is_stuck_(is_stuck) {}
  int64_t size() const override { return 64; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
      const override {
    is_asked_ = indices[0] >= 32;
    while (is_asked_ && is_stuck_) std::this_thread::sleep_for(1ms);
    const auto n = static_cast<int64_t>(indices.size());
    return {{torch::zeros({n, 2})}, {torch::zeros({n}, torch::kLong)}};
  }

 private:
  std::atomic<bool>&is_asked_, &is_stuck_;
};

TEST(SaveCheckpoint, SavesWhenAStopIsRequestedWhileTheLoaderHangs) {
  std::atomic<bool> is_asked = false, is_stuck = true;
  const TempFolder folder;
  DataBunch data = DataBunch::create(
      std::make_shared<StuckDataset>(is_asked, is_stuck),
      nullptr,
      {.batch_size = 8, .workers = 1});
  data.device = torch::kCPU;
  Learner learn(data, point_net(), quiet());
  learn.add<SaveCheckpoint>({.folder = folder / "run", .durable = false});
  std::jthread stopper([&] {
    while (!is_asked) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(100ms);  // lets the fit start waiting
    learn.request_stop();
    std::this_thread::sleep_for(300ms);
    is_stuck = false;
  });
  learn.fit(1, 1e-2);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_LT(learn.state().iteration, 8);
  EXPECT_TRUE(has_checkpoint(folder / "run"));
}

struct sigaction action_of(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action;
}

std::atomic<int> g_own_handler_calls = 0;

TEST(SaveCheckpoint, EndsTheFitAndSavesOnSigtermAndSigint) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Training run({.every_epochs = 0, .on_signals = true});
    run.learn.add<LambdaCallback>(
        LambdaCallbackOptions{.on_backward_end = [signal](Learner& l) {
          if (l.state().iteration == 5) ::raise(signal);
        }});
    run.learn.fit(2, 1e-2);
    EXPECT_EQ(run.learn.state().result, FitResult::interrupted);
    EXPECT_EQ(names(run.folder / "run"), (std::vector<std::string>{"step_6"}));
  }
}

TEST(SaveCheckpoint, RestoresTheProgramsSignalHandlers) {
  struct sigaction own = {};
  own.sa_handler = [](int) { ++g_own_handler_calls; };
  struct sigaction before = {};
  ::sigaction(SIGTERM, &own, &before);
  {
    Training run({.on_signals = true});
    bool was_other = false;
    run.learn.add<LambdaCallback>(
        LambdaCallbackOptions{.on_epoch_begin = [&](Learner&) {
          was_other = action_of(SIGTERM).sa_handler != own.sa_handler;
        }});
    run.learn.fit(1, 1e-2);
    EXPECT_TRUE(was_other);
    EXPECT_EQ(action_of(SIGTERM).sa_handler, own.sa_handler);

    // A second signal goes to the program immediately.
    run.learn.add<LambdaCallback>(
        LambdaCallbackOptions{.on_batch_begin = [&](Learner&) {
          ::raise(SIGTERM);
          ::raise(SIGTERM);
        }});
    run.learn.fit(1, 1e-2);
    EXPECT_EQ(g_own_handler_calls, 1);
    EXPECT_EQ(action_of(SIGTERM).sa_handler, own.sa_handler);
  }
  ::sigaction(SIGTERM, &before, nullptr);
}

TEST(SaveCheckpoint, HandlesNoSignalsByDefault) {
  Training run({});
  const auto before = action_of(SIGTERM).sa_handler;
  run.learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_epoch_begin = [&](Learner&) {
        EXPECT_EQ(action_of(SIGTERM).sa_handler, before);
      }});
  run.learn.fit(1, 1e-2);
}

TEST(SaveCheckpoint, ASignalInLrFindStopsTheFitAfterIt) {
  Training run({.on_signals = true});
  bool has_raised = false;
  run.learn.add<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [&](Learner&) {
        if (!has_raised) ::raise(SIGTERM);
        has_raised = true;
      }});
  run.learn.lr_find();
  run.learn.fit(1, 1e-2);
  EXPECT_EQ(run.learn.state().result, FitResult::interrupted);
  EXPECT_EQ(run.learn.state().iteration, 0);
}

TEST(SaveCheckpoint, RejectsNegativeNumbersAndAnEmptyFolder) {
  expect_error<c10::ValueError>(
      [] { SaveCheckpoint({.every_steps = -1}); },
      {"every_steps is -1"});
  expect_error<c10::ValueError>(
      [] { SaveCheckpoint({.folder = ""}); },
      {"folder"});
}

}  // namespace
}  // namespace tern::save_checkpoint_test
