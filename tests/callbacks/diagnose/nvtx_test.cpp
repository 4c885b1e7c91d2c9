#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/callbacks/diagnose/profiler.h"
#include "tern/tests/support/tiny.h"

namespace tern::nvtx_test {
namespace {

// Uses tests/support/nvtx_tool.c, which NVTX loads for this test.
class Nvtx : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    if (path == nullptr) GTEST_SKIP() << "run this test with ctest";
    void* tool = dlopen(path, RTLD_NOW);
    ASSERT_NE(tool, nullptr) << dlerror();
    seen_ = reinterpret_cast<const char* (*)()>(dlsym(tool, "nvtx_tool_seen"));
    ASSERT_NE(seen_, nullptr);
    reinterpret_cast<void (*)()>(dlsym(tool, "nvtx_tool_clear"))();
  }

  // Returns the name of each range when it opens and "-" when it closes.
  std::vector<std::string> events_of_training(int epochs) {
    Learner learn(
        testing_support::point_data(),
        testing_support::point_net(),
        LearnerOptions{.sink = silent()});
    learn.add<Profiler>({.nvtx = true, .show = false}).fit(epochs);
    std::vector<std::string> events;
    std::istringstream lines(seen_());
    for (std::string line; std::getline(lines, line);) events.push_back(line);
    return events;
  }

 private:
  const char* (*seen_)() = nullptr;
};

TEST_F(Nvtx, AToolSeesThePhasesOfAStepInOrder) {
  std::vector<std::string> names = events_of_training(1);
  std::erase(names, "-");
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const std::vector<std::string> expected = {
      "other",
      "data wait, to device",
      "forward",
      "loss",
      "backward",
      "step",
      "data wait, to device"};
  ASSERT_GE(names.size(), expected.size());
  names.resize(expected.size());
  EXPECT_EQ(names, expected);
}

TEST_F(Nvtx, EveryRangeIsClosedBeforeTheNext) {
  const std::vector<std::string> events = events_of_training(2);
  EXPECT_GT(events.size(), 50u);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i] == "-", i % 2 == 1) << i << ": " << events[i];
  }
  EXPECT_EQ(events.size() % 2, 0u);
}

}  // namespace
}  // namespace tern::nvtx_test
