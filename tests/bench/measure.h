#pragma once

// Method of the benchmarks: rounds of both sides alternate, so that a busy
// machine affects both, and the ratio is the median of the rounds' ratios. One
// line per claim:
//   name  ours  theirs  ratio  goal

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <time.h>
#include <vector>

#include <fmt/format.h>

namespace tern::bench {

inline clockid_t used_clock = CLOCK_MONOTONIC;

/// For a machine shared with others: `OMP_NUM_THREADS=1 PROGRAM --cpu-time`
/// counts processor time instead of wall-clock time.
inline void read_arguments(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string_view("--cpu-time")) {
    used_clock = CLOCK_PROCESS_CPUTIME_ID;
  }
}

inline double now() {
  timespec time{};
  clock_gettime(used_clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

inline double seconds(const std::function<void()>& f) {
  const double begin = now();
  f();
  return now() - begin;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median over `calls` calls, after two warm-up calls.
inline double median_seconds(int calls, const std::function<void()>& f) {
  std::vector<double> times;
  for (int i = -2; i < calls; ++i) {
    const double time = seconds(f);
    if (i >= 0) times.push_back(time);
  }
  return median(times);
}

/// Peak memory of this process, in MB.
inline double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Measured {
  double ours, theirs;
  /// Speedup of ours over theirs.
  double ratio;
};

/// Alternating rounds of both sides, and their medians.
class Rounds {
 public:
  /// Runs three warm-up rounds first.
  void run(
      const std::function<void()>& ours,
      const std::function<void()>& theirs,
      int rounds) {
    for (int round = -3; round < rounds; ++round) {
      // The order alternates, because the second side finds warm caches.
      double a = 0, b = 0;
      if (round % 2 == 0) {
        a = seconds(ours);
        b = seconds(theirs);
      } else {
        b = seconds(theirs);
        a = seconds(ours);
      }
      if (round < 0) continue;
      ours_.push_back(a);
      theirs_.push_back(b);
      ratios_.push_back(b / a);
    }
  }

  Measured medians() const {
    return {median(ours_), median(theirs_), median(ratios_)};
  }

 private:
  std::vector<double> ours_, theirs_, ratios_;
};

inline Measured measure(
    const std::function<void()>& ours,
    const std::function<void()>& theirs,
    int rounds = 31) {
  Rounds both;
  both.run(ours, theirs, rounds);
  return both.medians();
}

/// Prints one claim; returns false if `ratio` misses `goal`.
inline bool report(
    const std::string& name,
    const std::string& ours,
    const std::string& theirs,
    double ratio,
    double goal) {
  fmt::print(
      "{:34}  {:>12}  {:>12}  {:6.3f}x  goal {:.2f}x{}\n",
      name,
      ours,
      theirs,
      ratio,
      goal,
      ratio < goal ? "  MISSED" : "");
  std::fflush(stdout);
  return ratio >= goal;
}

inline bool
report_times(const std::string& name, const Measured& m, double goal) {
  return report(
      name,
      fmt::format("{:.2f} ms", m.ours * 1e3),
      fmt::format("{:.2f} ms", m.theirs * 1e3),
      m.ratio,
      goal);
}

}  // namespace tern::bench
