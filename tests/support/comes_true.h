#pragma once

#include <chrono>
#include <thread>

namespace tern::testing_support {

/// Waits some seconds for the condition and returns whether it was met.
template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

}  // namespace tern::testing_support
