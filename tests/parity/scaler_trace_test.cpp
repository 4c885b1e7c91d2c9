// Compares the scale and the growth tracker after every update with Python's.

#include <nlohmann/json.hpp>
#include <string>

#include <gtest/gtest.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/tests/parity/fixture.h"
#include "tern/tests/parity/scaler_events.h"

namespace tern::scaler_trace_test {
namespace {

using test::amp_aware_sgd;
using test::ordinary_sgd;
using test::Trace;

void expect_the_traces_of_python(test::MakeOptimizer make) {
  const auto fixture = test::load_fixture("scaler_traces");
  ASSERT_GE(fixture["traces"].size(), 10);
  for (const auto& of_python : fixture["traces"]) {
    SCOPED_TRACE(of_python["name"].get<std::string>());
    ASSERT_GE(of_python["trace"].size(), 12);
    GradScaler scaler = test::make_scaler(of_python["options"]);
    EXPECT_EQ(
        test::play(scaler, of_python["events"], make),
        of_python["trace"].get<Trace>());
  }
}

TEST(GradScaler, FollowsPythonsTraceOnOverflows) {
  expect_the_traces_of_python(ordinary_sgd);
}

TEST(GradScaler, FollowsPythonsTraceIfTheOptimizerSkips) {
  expect_the_traces_of_python(amp_aware_sgd);
}

TEST(GradScaler, ContinuesFromPythonsStateLikePython) {
  const auto fixture = test::load_fixture("scaler_state");
  ASSERT_GE(fixture["states"].size(), 3);
  for (const auto& of_python : fixture["states"]) {
    ASSERT_GE(of_python["trace"].size(), 10);
    // Before and after the scaler creates its tensors.
    for (const bool is_used : {false, true}) {
      GradScaler scaler({.device = torch::kCPU, .init_scale = 2});
      if (is_used) scaler.scale(torch::ones({}));
      scaler.load_state_dict(test::to_state(of_python["state_dict"]));
      EXPECT_EQ(test::to_json(scaler.state_dict()), of_python["state_dict"]);
      EXPECT_EQ(
          test::play(scaler, of_python["events"], ordinary_sgd),
          of_python["trace"].get<Trace>());
    }
  }
}

}  // namespace
}  // namespace tern::scaler_trace_test
