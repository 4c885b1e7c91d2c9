#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::testing_support {

/// Trains two epochs of seven steps on two ranks: once in one run, and once
/// stopped after step 9 and resumed. Expects bit-identical weights.
/// \param make  Creates a distributed Learner.
inline void expect_exact_resume_on_ranks(
    const TempFolder& folder,
    const std::function<std::unique_ptr<Learner>()>& make) {
  const auto saving = [&](const char* name) {
    auto learn = make();
    learn->add<SaveCheckpoint>({.folder = folder / name, .every_steps = 2});
    return learn;
  };
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto whole = saving("whole");
    whole->fit(2, 1e-2);
    EXPECT_EQ(whole->state().iteration, 14);
    if (environment.rank == 0) {
      write_file(folder / "expected", bytes_of(*whole));
    }
  });
  expect_ranks(2, [&](const LaunchEnvironment&) {
    const auto cut = saving("cut");
    cut->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
      if (l.state().training && l.state().iteration == 9) l.request_stop();
    }});
    cut->fit(2, 1e-2);
  });
  expect_ranks(2, [&](const LaunchEnvironment&) {
    const auto learn = saving("cut");
    learn->resume(folder / "cut");
    learn->fit(2, 1e-2);
    EXPECT_EQ(learn->state().iteration, 14);
    const auto expected = read_file(folder / "expected");
    EXPECT_TRUE(
        bytes_of(*learn) == std::string(expected.begin(), expected.end()));
  });
}

}  // namespace tern::testing_support
