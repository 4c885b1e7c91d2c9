// Random training runs end like the same runs undisturbed; see `./dev combos`.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tern/tests/learner/combos/worker.h"
#include "tern/tests/support/random_cases.h"

namespace tern::combos_test {
namespace {

using namespace combos;  // NOLINT: in a test

// Takes about ten seconds.
constexpr uint64_t kCases = 200;

// Results by message, each with an example.
class Report {
 public:
  void add(uint64_t seed, Worker& worker) {
    const Case drawn{.seed = seed};
    const Outcome outcome = worker.run(drawn);
    ++cases_;
    if (outcome.kind == Outcome::Kind::refused) {
      ++refusals_[outcome.text];
    } else if (outcome.kind == Outcome::Kind::failed) {
      const Case least = simplest(worker, drawn, outcome);
      Failure& failure = failures_[key(least, outcome)];
      if (failure.seeds.empty()) {
        failure.text = outcome.text;
        failure.drawn = describe(drawn.configuration());
        failure.least = describe(least.configuration());
      }
      failure.seeds.push_back(seed);
      fmt::print(
          "seed {}: {}\n  {}\n  minimal case: {}\n",
          seed,
          outcome.text,
          describe(drawn.configuration()),
          describe(least.configuration()));
      std::fflush(stdout);
    }
  }

  // Prints rejected cases last, which show that not every case is rejected.
  void tell() const {
    int64_t refused = 0;
    for (const auto& [text, count] : refusals_) refused += count;
    for (const auto& [key, failure] : failures_) {
      std::string seeds;
      for (const uint64_t seed : failure.seeds) {
        seeds += fmt::format(" {}", seed);
      }
      ADD_FAILURE() << failure.text << "\n  drawn: " << failure.drawn
                    << "\n  minimal case: " << failure.least
                    << "\n  TERN_RANDOM_SEED:" << seeds;
    }
    fmt::print("{} cases, {} rejected:\n", cases_, refused);
    for (const auto& [text, count] : refusals_) {
      fmt::print("{:6} {}\n", count, text);
    }
  }

 private:
  struct Failure {
    std::string text, drawn, least;
    std::vector<uint64_t> seeds;
  };

  // Failures with the same minimal case and the same message are reported
  // together.
  static std::string key(const Case& least, const Outcome& outcome) {
    Configuration c = least.configuration();
    c.samples = c.valid = c.batch_size = 0;
    c.stops.assign(1, 0);
    for (Act& act : c.acts) act.at = {.event = act.at.event};
    for (FitCall& fit : c.fits)
      fit = {.schedule = fit.schedule, .before = fit.before};
    return describe(c) + outcome.text.substr(0, 40);
  }

  int64_t cases_ = 0;
  std::map<std::string, int64_t> refusals_;
  std::map<std::string, Failure> failures_;
};

TEST(Combos, EndLikeTheSameRunsUndisturbed) {
  Worker worker;
  Report report;
  for_random_cases(kCases, [&](uint64_t seed) { report.add(seed, worker); });
  report.tell();
}

// Runs the case of TERN_RANDOM_SEED without the parts that
// TERN_COMBOS_SIMPLER="3 17" lists, in this process for use in a debugger.
TEST(Combos, CanBeRunOneByOne) {
  const char* const seed = std::getenv("TERN_RANDOM_SEED");
  const char* const simpler = std::getenv("TERN_COMBOS_SIMPLER");
  if (!seed || !simpler) GTEST_SKIP() << "TERN_COMBOS_SIMPLER is not set.";
  Case one{.seed = std::stoull(seed)};
  std::istringstream words(simpler);
  for (size_t at = 0; words >> at;) one.simpler.push_back(at);
  fmt::print("{}\n", describe(one.configuration()));
  const Outcome outcome = run_here(one);
  EXPECT_NE(outcome.kind, Outcome::Kind::failed) << outcome.text;
  if (outcome.kind == Outcome::Kind::refused) fmt::print("{}\n", outcome.text);
}

}  // namespace
}  // namespace tern::combos_test
