#pragma once

#include <atomic>
#include <cstring>
#include <memory>

#include <ATen/record_function.h>

namespace tern::test {

/// Counts how often a value is read from a tensor into the program, which on a
/// GPU waits for the device, while it lives. All threads count.
///
///   HostReads reads;
///   tensor.item<float>();
///   reads.count();  // 1
class HostReads {
 public:
  HostReads() {
    total() = 0;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function)
                -> std::unique_ptr<at::ObserverContext> {
              if (!std::strcmp(function.name(), "aten::_local_scalar_dense")) {
                ++total();
              }
              return nullptr;
            })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~HostReads() { at::removeCallback(handle_); }
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  int count() const { return total(); }

 private:
  // The callback may capture nothing.
  static std::atomic<int>& total() {
    static std::atomic<int> total = 0;
    return total;
  }

  at::CallbackHandle handle_;
};

}  // namespace tern::test
