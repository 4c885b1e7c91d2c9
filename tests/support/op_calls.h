#pragma once

#include <atomic>
#include <cstring>
#include <memory>

#include <ATen/record_function.h>

namespace tern::test {

/// Counts the calls of one operation, in all threads, while it lives. One at a
/// time.
///
///   OpCalls casts("aten::_to_copy");
///   tensor.to(torch::kHalf);
///   casts.count();  // 1
class OpCalls {
 public:
  explicit OpCalls(const char* name) {
    state().name = name;
    state().count = 0;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function)
                -> std::unique_ptr<at::ObserverContext> {
              if (!std::strcmp(function.name(), state().name)) ++state().count;
              return nullptr;
            })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~OpCalls() { at::removeCallback(handle_); }
  OpCalls(const OpCalls&) = delete;
  OpCalls& operator=(const OpCalls&) = delete;

  int count() const { return state().count; }

 private:
  struct State {
    const char* name = "";
    std::atomic<int> count = 0;
  };
  // The callback may capture nothing.
  static State& state() {
    static State state;
    return state;
  }

  at::CallbackHandle handle_;
};

/// Counts how often a value is read from a tensor into the program, which on a
/// GPU waits for the device.
class HostReads : public OpCalls {
 public:
  HostReads() : OpCalls("aten::_local_scalar_dense") {}
};

}  // namespace tern::test
