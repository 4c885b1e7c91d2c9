#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/profiler.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/tiny.h"

namespace tern::peak_memory_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(PeakMemory, MeasuresEachEpoch) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  constexpr int64_t kMiB = 1 << 20;
  learn.add<PeakMemory>().add<LambdaCallback>({.on_step = [](Learner& l) {
    if (l.state().epoch == 1) torch::empty({8 * kMiB}, torch::kByte);
  }});
  learn.fit(3);
  const auto& epochs = learn.find<PeakMemory>()->epochs();
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_GT(epochs[1], 8 * kMiB);
  EXPECT_LT(epochs[1], 9 * kMiB);
  EXPECT_LT(epochs[2], kMiB);
  EXPECT_TRUE(sink->lines.back().starts_with("PeakMemory: 8."))
      << sink->lines.back();
  EXPECT_TRUE(sink->lines.back().ends_with("in epoch 1"));
  const auto& metrics = learn.recorder().epochs()[1].metrics;
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].name, "peak_mib");
  EXPECT_NEAR(metrics[0].value, 8, 1);
  learn.lr_find({.num_it = 6});
  learn.fit(1);
  EXPECT_EQ(epochs.size(), 1u);
}

}  // namespace
}  // namespace tern::peak_memory_test
