// Trainings put together at random end as they do undisturbed: ./dev combos.

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

// As many as take some ten seconds.
constexpr uint64_t kCases = 200;

// What cases came to, by message and with an example each.
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
          "seed {}: {}\n  {}\n  needs no more than: {}\n",
          seed,
          outcome.text,
          describe(drawn.configuration()),
          describe(least.configuration()));
      std::fflush(stdout);
    }
  }

  // Refusals last, that a reader sees that not everything is refused.
  void tell() const {
    int64_t refused = 0;
    for (const auto& [text, count] : refusals_) refused += count;
    for (const auto& [key, failure] : failures_) {
      std::string seeds;
      for (const uint64_t seed : failure.seeds) {
        seeds += fmt::format(" {}", seed);
      }
      ADD_FAILURE() << failure.text << "\n  drawn: " << failure.drawn
                    << "\n  needs no more than: " << failure.least
                    << "\n  TERN_RANDOM_SEED of" << seeds;
    }
    fmt::print("{} cases, {} refused:\n", cases_, refused);
    for (const auto& [text, count] : refusals_) {
      fmt::print("{:6} {}\n", count, text);
    }
  }

 private:
  struct Failure {
    std::string text, drawn, least;
    std::vector<uint64_t> seeds;
  };

  // Cases that need the same for the same failure are told together.
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

TEST(Combos, EndAsTheSameTrainingUndisturbed) {
  Worker worker;
  Report report;
  for_random_cases(kCases, [&](uint64_t seed) { report.add(seed, worker); });
  report.tell();
}

// TERN_COMBOS_SIMPLER="3 17" leaves that out of TERN_RANDOM_SEED's case; for a
// debugger it runs in this process.
TEST(Combos, CanBeLookedAtOneByOne) {
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
