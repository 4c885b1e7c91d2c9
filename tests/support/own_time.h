#pragma once

// Measures time so that a busy machine does not distort it.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace tern::testing_support {

/// Seconds in which this process could run: a separate thread counts naps of 10
/// ms. While the machine is suspended or other processes use its cores, the
/// count hardly advances, so a test can require "within five seconds" on a busy
/// machine too. Never ahead of the wall clock.
class OwnTime {
 public:
  double seconds() const {
    return std::chrono::duration<double>(kNap).count() *
           static_cast<double>(naps_);
  }

 private:
  static constexpr std::chrono::milliseconds kNap{10};

  std::atomic<int64_t> naps_ = 0;
  std::jthread thread_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(kNap);
      ++naps_;
    }
  }};
};

/// Sets `least` to the seconds that `f` takes, if they are fewer. Of several
/// calls, most likely one had a core to itself.
template <class F>
void keep_least(double& least, const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  least = std::min(least, seconds.count());
}

}  // namespace tern::testing_support
