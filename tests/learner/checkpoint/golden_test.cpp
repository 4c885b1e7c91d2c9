// Files of every format version stay readable. tests/learner/checkpoint/golden
// contains one checkpoint per version, written by that version of
// examples/checkpoints after four batches.

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::golden_test {
namespace {

namespace fs = std::filesystem;

TEST(Golden, CheckpointsOfEveryVersionAreRead) {
  int count = 0;
  for (const auto& entry :
       fs::directory_iterator(in_tests_folder("learner/checkpoint/golden"))) {
    SCOPED_TRACE(entry.path());
    std::vector<std::string> problems;
    const Checkpoint checkpoint = read_checkpoint(entry.path(), problems);
    EXPECT_TRUE(problems.empty());
    EXPECT_EQ(checkpoint.step, 4);
    EXPECT_EQ(checkpoint.run.size(), 16U);
    EXPECT_EQ(checkpoint.settings.at("batch size"), "64");
    EXPECT_EQ(checkpoint.training["iteration"].item<int64_t>(), 4);
    EXPECT_TRUE(checkpoint.optimizer.contains("0.weight/step"));
    double sum = 0;
    for (const auto& item : checkpoint.model) {
      sum += item.value().to(torch::kDouble).abs().sum().item<double>();
    }
    EXPECT_NEAR(sum, 345.38292181414727, 1e-6);
    ++count;
  }
  EXPECT_GE(count, 1);
}

}  // namespace
}  // namespace tern::golden_test
