#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace tern {

/// Calls `test(seed)` for seeds 1 to `count`, the same in each run, unless the
/// environment selects other seeds: TERN_RANDOM_SECONDS=60 draws new seeds for
/// that long, as `./dev test --long` does; TERN_RANDOM_SEED=7 repeats one seed.
/// With TERN_RANDOM_START=TEXT as well as seconds, the new seeds are derived
/// from the text, so that CI's result for a commit is reproducible (`.ci/run`
/// passes the commit). Stops at the first failure and reports its seed.
template <class Test>
void for_random_cases(uint64_t count, const Test& test) {
  using Clock = std::chrono::steady_clock;
  const auto passes = [&](uint64_t seed) {
    const testing::ScopedTrace trace(
        __FILE__,
        __LINE__,
        "repeat it with TERN_RANDOM_SEED=" + std::to_string(seed));
    test(seed);
    return !testing::Test::HasFailure();
  };
  if (const char* seed = std::getenv("TERN_RANDOM_SEED")) {
    passes(std::stoull(seed));
  } else if (const char* seconds = std::getenv("TERN_RANDOM_SECONDS")) {
    const auto end = Clock::now() + std::chrono::seconds(std::stoll(seconds));
    const char* const start = std::getenv("TERN_RANDOM_START");
    const std::string text =
        start != nullptr ? start : std::to_string(std::random_device()());
    std::seed_seq sequence(text.begin(), text.end());
    std::mt19937_64 seeds(sequence);
    while (passes(seeds()) && Clock::now() < end) {
    }
  } else {
    for (uint64_t seed = 1; seed <= count && passes(seed); ++seed) {
    }
  }
}

}  // namespace tern
