#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace tern {

/// What `f` returns, or nothing if it throws or takes longer than `patience`:
/// it then goes on in a thread of its own and nobody hears of it. For what may
/// wait for another machine without end; `f` owns all that it uses.
template <class F>
auto within(std::chrono::milliseconds patience, F f) noexcept
    -> std::optional<std::invoke_result_t<F&>> {
  try {
    std::promise<std::invoke_result_t<F&>> promise;
    auto answer = promise.get_future();
    std::thread([f = std::move(f), promise = std::move(promise)]() mutable {
      try {
        promise.set_value(f());
      } catch (...) {  // NOLINT: a promise that is not kept says it
      }
    }).detach();
    if (answer.wait_for(patience) != std::future_status::ready) return {};
    return answer.get();
  } catch (...) {  // NOLINT: as above; or there is no thread to be had
    return {};
  }
}

}  // namespace tern
