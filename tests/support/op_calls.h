#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

namespace tern::test {

/// Counts the calls of one operation in all threads during its lifetime. Only
/// one instance may exist at a time.
///
///   OpCalls casts("aten::_to_copy");
///   tensor.to(torch::kHalf);
///   casts.count();  // 1
class OpCalls {
 public:
  explicit OpCalls(const char* name)
      : OpCalls([](const at::RecordFunction& function) {
          return !std::strcmp(function.name(), state().name);
        }) {
    state().name = name;
  }
  ~OpCalls() { at::removeCallback(handle_); }
  OpCalls(const OpCalls&) = delete;
  OpCalls& operator=(const OpCalls&) = delete;

  int count() const { return state().count; }

 protected:
  using Counts = bool (*)(const at::RecordFunction& function);
  explicit OpCalls(Counts counts) {
    state().counts = counts;
    state().count = 0;
    handle_ =
        at::addGlobalCallback(at::RecordFunctionCallback(
                                  [](const at::RecordFunction& function)
                                      -> std::unique_ptr<at::ObserverContext> {
                                    if (state().counts(function))
                                      ++state().count;
                                    return nullptr;
                                  })
                                  .needsInputs(true)
                                  .scopes({at::RecordScope::FUNCTION}));
  }

 private:
  struct State {
    const char* name = "";
    Counts counts = nullptr;
    std::atomic<int> count = 0;
  };
  // The callback may not capture anything.
  static State& state() {
    static State state;
    return state;
  }

  at::CallbackHandle handle_;
};

/// Counts how often the program reads a value from a tensor, or the size of a
/// mask's selection, which on a GPU synchronizes with the device.
class HostReads : public OpCalls {
 public:
  /// \param copies  Also counts transfers to the CPU, and each `copy_` that
  ///                converts nothing, unless it is `non_blocking`. In a test on
  ///                the CPU, transfers to the device count as well, because it
  ///                is unknown which tensors would be on the device.
  explicit HostReads(bool copies = false)
      : OpCalls(copies ? &is_read_or_copy : &is_read) {}

 private:
  static bool is_read(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    return name == "aten::_local_scalar_dense" || name == "aten::nonzero" ||
           name == "aten::masked_select";
  }

  static bool is_read_or_copy(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    if (name != "aten::to" && name != "aten::copy_") return is_read(function);
    const auto& schema = c10::Dispatcher::singleton()
                             .findSchema(*function.operator_name())
                             ->schema();
    const auto input = [&](const char* argument) {
      const auto at = schema.argumentIndexWithName(argument);
      return at ? function.inputs()[*at] : c10::IValue();
    };
    if (input("non_blocking").toBool()) return false;
    if (name == "aten::to") {
      return input("device").isDevice() && input("device").toDevice().is_cpu();
    }
    return input("src").toTensor().scalar_type() ==
           input("self").toTensor().scalar_type();
  }
};

}  // namespace tern::test
