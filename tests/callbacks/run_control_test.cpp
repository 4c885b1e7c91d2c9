#include "tern/callbacks/run_control.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/comes_true.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::run_control_test {
namespace {

using namespace testing_support;  // NOLINT
using std::chrono::milliseconds;

// Makes batches take a millisecond or more, so that another thread has time to
// act.
std::shared_ptr<Callback> slowly() {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_step = [](Learner&) {
        std::this_thread::sleep_for(milliseconds(1));
      }});
}

TEST(RunControl, PausesAndResumesFromAnotherThread) {
  Learner learn(point_data(), point_net(), quiet());
  const auto control = std::make_shared<RunControl>();
  std::atomic<int64_t> batches = 0;
  learn.add(control).add(slowly()).add<LambdaCallback>(
      {.on_step_end = [&](Learner&) { ++batches; }});
  control->pause();  // before the fit; takes effect after its first step
  std::thread training([&] { learn.fit(3); });
  EXPECT_TRUE(comes_true([&] { return control->is_paused(); }));
  const int64_t at_pause = batches;
  EXPECT_EQ(at_pause, 1);
  std::this_thread::sleep_for(milliseconds(120));
  EXPECT_EQ(batches, at_pause);
  control->resume();
  training.join();
  EXPECT_FALSE(control->is_paused());
  EXPECT_EQ(batches, 24);
  EXPECT_EQ(learn.state().result, FitResult::completed);
}

TEST(RunControl, PausingDoesNotChangeTheResult) {
  Learner plain(point_data(), point_net(), quiet());
  plain.fit_one_cycle(3, 0.01);
  Learner learn(point_data(), point_net(), quiet());
  const auto control = std::make_shared<RunControl>();
  learn.add(control).add(slowly());
  std::atomic<bool> is_done = false;
  std::thread training([&] {
    learn.fit_one_cycle(3, 0.01);
    is_done = true;
  });
  while (!is_done) {
    control->pause();
    std::this_thread::sleep_for(milliseconds(3));
    control->resume();
    std::this_thread::sleep_for(milliseconds(1));
  }
  training.join();
  EXPECT_TRUE(all_equal(parameters_of(learn), parameters_of(plain)));
  EXPECT_EQ(learn.recorder().losses(), plain.recorder().losses());
}

TEST(RunControl, StopsAPausedFit) {
  Learner learn(point_data(), point_net(), quiet());
  const auto control = std::make_shared<RunControl>();
  learn.add(control);
  control->pause();
  std::thread training([&] { learn.fit(100); });
  EXPECT_TRUE(comes_true([&] { return control->is_paused(); }));
  learn.request_stop();
  training.join();
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_EQ(learn.recorder().losses().size(), 1u);
}

TEST(RunControl, OverridesTheLearningRatesOfASchedule) {
  Learner learn(point_data(), point_net(), quiet());
  const auto control = std::make_shared<RunControl>();
  learn.add(control);
  learn.split({"3"});
  learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    if (!l.state().training) return;
    if (l.state().iteration == 3) {
      std::thread([&] {
        control->set_learning_rates(LearningRates::per_group({1e-5, 1e-4}));
      }).join();
    }
    if (l.state().iteration == 10) control->release_learning_rates();
  }});
  learn.fit_one_cycle(2, 0.01);
  const auto& rates = learn.recorder().learning_rates();
  EXPECT_GT(rates[3], 1e-4);
  for (int i = 4; i <= 10; ++i) EXPECT_EQ(rates[i], 1e-4) << i;
  EXPECT_NE(rates[11], 1e-4);  // set by the schedule again
  // The next fit uses its own learning rates.
  learn.fit(1, 0.5);
  EXPECT_EQ(learn.recorder().learning_rates().back(), 0.5);
}

TEST(RunControl, RestoresTheLearningRatesOfAFitWithoutSchedule) {
  Learner learn(point_data(), point_net(), quiet());
  const auto control = std::make_shared<RunControl>();
  learn.add(control).add<LambdaCallback>({.on_step = [&](Learner& l) {
    if (l.state().iteration == 1) control->set_learning_rates(0.25);
    if (l.state().iteration == 4) control->release_learning_rates();
  }});
  learn.fit(1, 0.5);
  EXPECT_EQ(
      learn.recorder().learning_rates(),
      (std::vector<double>{0.5, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5}));
}

TEST(RunControl, RejectsLearningRatesThatDoNotFitWithAWarning) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  const auto control = std::make_shared<RunControl>();
  learn.add(control);
  control->set_learning_rates(LearningRates::per_group({1, 2, 3}));
  learn.fit(1, 0.5);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("got 3 learning rates"), std::string::npos);
  EXPECT_EQ(learn.recorder().learning_rates().back(), 0.5);
}

TEST(RunControl, WritesACheckpointOnRequestEvenWhilePaused) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  const auto control = std::make_shared<RunControl>();
  learn.add(control).add(slowly());
  control->pause();
  std::thread training([&] { learn.fit(2); });
  EXPECT_TRUE(comes_true([&] { return control->is_paused(); }));
  control->request_checkpoint("run");
  EXPECT_TRUE(comes_true([&] { return control->checkpoints_written() == 1; }));
  EXPECT_EQ(list_checkpoints(temp / "run").size(), 1u);
  control->resume();
  training.join();

  Learner continued(point_data(), point_net(3), quiet());
  continued.add(std::make_shared<RunControl>()).add(slowly());
  continued.resume(temp / "run").fit(2);
  EXPECT_TRUE(all_equal(parameters_of(continued), parameters_of(learn)));
}

TEST(RunControl, WarnsIfACheckpointCannotBeWrittenAndContinues) {
  const TempFolder temp;
  write_file(temp / "file", "in the way");
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.path = temp.path(), .sink = sink});
  const auto control = std::make_shared<RunControl>();
  learn.add(control);
  control->request_checkpoint("file/run");
  learn.fit(1);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("training continues"), std::string::npos);
  EXPECT_EQ(control->checkpoints_written(), 0);
  EXPECT_EQ(learn.recorder().losses().size(), 8u);
}

TEST(RunControl, SavesLearningRatesInTheCheckpoint) {
  const TempFolder temp;
  const auto train = [&](bool saves, Learner& learn) {
    const auto control = std::make_shared<RunControl>();
    learn.add(control).add<LambdaCallback>({.on_step = [=](Learner& l) {
      if (l.state().iteration == 2) control->set_learning_rates(1e-4);
      if (saves && l.state().iteration == 5) {
        control->request_checkpoint("run");
      }
    }});
  };
  Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
  train(true, learn);
  learn.fit(2, 0.01);
  Learner continued(point_data(), point_net(3), quiet());
  train(false, continued);
  continued.resume(temp / "run").fit(2, 0.01);
  EXPECT_EQ(continued.recorder().learning_rates().back(), 1e-4);
  EXPECT_TRUE(all_equal(parameters_of(continued), parameters_of(learn)));
}

// Requested before the epoch's first batch, so the new learning rates start
// with the second batch.
TEST(RunControl, SavesAPendingRequestInTheCheckpoint) {
  const TempFolder temp;
  const auto train = [&](bool stops, bool resumes) {
    Learner learn(point_data(), point_net(), quiet({.path = temp.path()}));
    const auto control = std::make_shared<RunControl>();
    learn.add(control).add<LambdaCallback>(
        {.on_epoch_begin =
             [=](Learner& l) {
               if (l.state().epoch != 1) return;
               control->set_learning_rates(1e-4);
               if (stops) l.request_stop();
             },
         .on_interrupt = [](Learner& l) { l.save_checkpoint("run"); }});
    if (resumes) learn.resume("run");
    learn.fit(2, 0.01);
    return parameters_of(learn);
  };
  const Tensors whole = train(/*stops=*/false, /*resumes=*/false);
  train(/*stops=*/true, /*resumes=*/false);
  EXPECT_TRUE(all_equal(train(/*stops=*/false, /*resumes=*/true), whole));
}

}  // namespace
}  // namespace tern::run_control_test
