// Files of every version of the formats, as the version wrote them, stay
// readable. TERN_WRITE_GOLDEN=1 writes those of today's version, to be kept
// when a version is raised.

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/learner/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/save.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/tiny_checkpoint.h"

namespace tern::golden_test {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;  // NOLINT: in a test

const fs::path kGolden = TERN_TESTS_FOLDER "/learner/golden";

// The folders of a kind, one for each version.
std::vector<fs::path> versions(const std::string& kind) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.path().filename().string().starts_with(kind + "_")) {
      found.push_back(entry.path());
    }
  }
  EXPECT_FALSE(found.empty()) << kind;
  return found;
}

LearnerOptions options_in(const fs::path& folder) {
  LearnerOptions options = quiet({.lr = 1e-2});
  options.path = folder;
  options.model_dir = ".";
  return options;
}

bool writes() {
  return std::getenv("TERN_WRITE_GOLDEN") != nullptr;
}

TEST(Golden, CheckpointsOfEveryVersionAreRead) {
  if (writes()) write_checkpoint(kGolden / "checkpoint_1", tiny_checkpoint(7));
  for (const fs::path& folder : versions("checkpoint")) {
    SCOPED_TRACE(folder);
    std::vector<std::string> problems;
    expect_equal(read_checkpoint(folder, problems), tiny_checkpoint(7));
    EXPECT_TRUE(problems.empty());
  }
}

TEST(Golden, SavedModelsOfEveryVersionAreLoaded) {
  const auto trained = [](const fs::path& folder) {
    auto learn = std::make_unique<Learner>(
        point_data(),
        point_net(),
        options_in(folder));
    learn->fit(1);
    return learn;
  };
  if (writes()) trained(kGolden / "saved_1")->save("net");
  for (const fs::path& folder : versions("saved")) {
    SCOPED_TRACE(folder);
    auto same = trained(folder);
    Learner loaded(point_data(), point_net(/*seed=*/1), options_in(folder));
    loaded.load("net");
    for (const auto& item : loaded.state_dict()) {
      EXPECT_TRUE(torch::allclose(
          item.value(),
          same->state_dict()[item.key()],
          1e-4,
          1e-5))
          << item.key();
    }
    loaded.fit(1);  // with the optimizer's state
    same->fit(1);
    EXPECT_NEAR(
        loaded.recorder().losses().back(),
        same->recorder().losses().back(),
        1e-3);
  }
}

}  // namespace
}  // namespace tern::golden_test
