#include "tern/callbacks/diagnose/profiler.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/schedules/lr_find.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::profiler_test {
namespace {

using namespace testing_support;  // NOLINT
using std::chrono::milliseconds;

void sleep(milliseconds time) {
  std::this_thread::sleep_for(time);
}

// Sleeps for a known time in each phase except the step.
std::unique_ptr<Learner> slow_learner(
    Sink sink = silent(),
    std::filesystem::path path = ".") {
  struct SlowData final : Dataset {
    int64_t size() const override { return 16; }
    Batch get_batch(c10::ArrayRef<int64_t> i, const BatchContext&)
        const override {
      sleep(milliseconds(8));
      const auto n = static_cast<int64_t>(i.size());
      return {{torch::randn({n, 2})}, {torch::zeros({n}, torch::kLong)}};
    }
  };
  struct SlowNet : torch::nn::Module {
    SlowNet() { linear = register_module("linear", torch::nn::Linear(2, 2)); }
    torch::Tensor forward(const torch::Tensor& x) {
      sleep(milliseconds(4));
      return linear->forward(x);
    }
    torch::nn::Linear linear{nullptr};
  };
  DataBunch data = DataBunch::create(
      std::make_shared<SlowData>(),
      std::make_shared<SlowData>(),
      {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  data.batch_transforms.push_back(
      [](Batch&, const BatchTransformContext&) { sleep(milliseconds(3)); });
  auto learn = std::make_unique<Learner>(
      data,
      std::make_shared<SlowNet>(),
      LearnerOptions{
          .loss = Loss([](torch::Tensor pred, torch::Tensor target) {
            sleep(milliseconds(2));
            return torch::nn::CrossEntropyLoss()(pred, target);
          }),
          .path = path,
          .sink = sink});
  learn->add<LambdaCallback>(
      {.on_backward_begin = [](Learner&) { sleep(milliseconds(1)); },
       .on_batch_end =
           [](Learner& l) {
             if (l.state().training) sleep(milliseconds(5));
           }});
  return learn;
}

TEST(Profiler, MeasuresThePeakMemoryOfEachPhase) {
  const auto sink = std::make_shared<MemorySink>();
  const auto profiler =
      std::make_shared<Profiler>(Profiler::Options{.memory = true});
  constexpr int64_t kMiB = 1 << 20;
  const auto take = [](int64_t mebibytes) {
    torch::empty({mebibytes * kMiB}, torch::kByte);
  };
  LearnerOptions options = {.sink = sink};
  options.loss = Loss([&](torch::Tensor pred, torch::Tensor target) {
    take(8);
    return torch::nn::CrossEntropyLoss()(pred, target);
  });
  Learner learn(point_data(), point_net(), options);
  learn.add(profiler).add<LambdaCallback>(
      {.on_backward_begin = [&](Learner&) { take(4); }});
  learn.fit(1);
  EXPECT_NEAR(profiler->peak_bytes(Phase::loss) / kMiB, 8, 1);
  EXPECT_NEAR(profiler->peak_bytes(Phase::callbacks) / kMiB, 4, 1);
  EXPECT_LT(profiler->peak_bytes(Phase::step), kMiB);
  EXPECT_TRUE(sink->lines.at(sink->lines.size() - 11).ends_with("peak MiB"))
      << sink->lines.at(sink->lines.size() - 11);
  learn.add<PeakMemory>();
  expect_error<c10::ValueError>([&] { learn.fit(1); }, {"PeakMemory"});
  EXPECT_EQ(Profiler().peak_bytes(Phase::loss), 0);
}

TEST(Profiler, MeasuresEachPhaseSeparately) {
  const auto learn = slow_learner();
  const auto profiler = std::make_shared<Profiler>();
  using Clock = std::chrono::steady_clock;
  Clock::time_point train_begin;
  std::chrono::duration<double> inside = {};
  learn->add<LambdaCallback>(
      {.on_train_begin = [&](Learner&) { train_begin = Clock::now(); },
       .on_epoch_end = [&](Learner&) { inside = Clock::now() - train_begin; }});
  for (int fit = 0; fit < 2; ++fit) {
    const auto begin = Clock::now();
    fit == 0 ? learn->add(profiler).fit(1) : learn->fit(1);
    const std::chrono::duration<double> wall = Clock::now() - begin;
    EXPECT_EQ(profiler->batches(), 4);
    // Lower bounds, because a busy machine adds to each. The sum of the phases
    // is the whole time.
    const auto expect_ms = [&](Phase phase, double ms) {
      EXPECT_GE(profiler->seconds(phase) * 1e3, ms) << to_string(phase);
    };
    expect_ms(Phase::data_wait, 4 * 8);
    expect_ms(Phase::to_device, 4 * 3);
    expect_ms(Phase::forward, 4 * 4);
    expect_ms(Phase::loss, 4 * 2);
    expect_ms(Phase::callbacks, 4 * 6);
    expect_ms(Phase::validation, 4 * (8 + 3 + 4 + 2));
    double sum = 0;
    for (size_t i = 0; i < kPhases; ++i) {
      sum += profiler->seconds(static_cast<Phase>(i));
    }
    EXPECT_LE(sum, wall.count());
    EXPECT_GE(sum, inside.count());
  }
}

TEST(Profiler, ShowsATableWhenTheFitEnds) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<Profiler>().fit(1);
  ASSERT_EQ(sink->lines.size(), 2u + 3 + kPhases);
  EXPECT_TRUE(sink->lines[2].starts_with("Profiler: 8 batches in "));
  EXPECT_TRUE(sink->lines[4].starts_with("data wait"));
  learn.lr_find({.num_it = 6});
  EXPECT_EQ(sink->lines.size(), 2u + 3 + kPhases);
  EXPECT_EQ(learn.callbacks().size(), 3u);  // its helper callback was removed
}

TEST(Profiler, WritesATrace) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder / ""}));
  learn.add<Profiler>({.trace = "trace.json", .trace_batches = 2}).fit(1);
  const auto trace =
      nlohmann::json::parse(std::ifstream(folder / "trace.json"));
  int forwards = 0;
  double end = 0;
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), end - 0.01);
    end = event["ts"].get<double>() + event["dur"].get<double>();
    forwards += event["name"] == "forward";
  }
  EXPECT_EQ(forwards, 2);
}

TEST(Profiler, FailsBeforeTrainingIfTheTraceCannotBeWritten) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  Learner learn(point_data(), point_net(), quiet({.path = folder / "file"}));
  learn.add<Profiler>({.trace = "trace.json"});
  expect_error<IoError>([&] { learn.fit(1); }, {"file"});
  EXPECT_EQ(learn.callbacks().size(), 3u);
}

TEST(Profiler, MarksPhasesForNsightEvenWithoutATool) {
  const auto sink = std::make_shared<MemorySink>();
  auto learn = slow_learner(sink);
  learn->add<Profiler>({.nvtx = true, .show = false}).fit(1);
  EXPECT_EQ(learn->find<Profiler>()->batches(), 4);
  for (const std::string& line : sink->lines) {
    EXPECT_EQ(line.find("ms/batch"), std::string::npos);
  }
}

TEST(Profiler, RestartsOnRequest) {
  auto learn = slow_learner();
  learn->add<Profiler>();
  const auto profiler = learn->find<Profiler>();
  learn->add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    if (l.state().training && l.state().batch == 3) profiler->restart();
  }});
  learn->fit(1);
  EXPECT_EQ(profiler->batches(), 1);
  EXPECT_EQ(profiler->seconds(Phase::data_wait), 0);  // data was loaded
  EXPECT_GE(profiler->seconds(Phase::forward), 0.004);
}

TEST(Profiler, NamesTheCallbackThatTakesTheTime) {
  struct Slow final : Callback {
    void on_batch_end(Learner&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  const auto profiler = std::make_shared<Profiler>();
  learn.add<Slow>().add(profiler).fit(1);
  const auto& times = profiler->callback_seconds();
  ASSERT_FALSE(times.empty());
  EXPECT_EQ(times[0].first, "Slow");
  EXPECT_GE(times[0].second, 8 * 0.005);
  EXPECT_NE(sink->lines.back().find("of callbacks: Slow"), std::string::npos)
      << sink->lines.back();
}

}  // namespace
}  // namespace tern::profiler_test
