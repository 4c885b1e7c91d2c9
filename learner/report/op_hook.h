#pragma once

#include <cstdint>
#include <functional>

#include <ATen/record_function.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// Calls a function after each operation that this thread runs during the
/// hook's lifetime. Each thread can have only one hook at a time.
class OpHook {
 public:
  struct Op {
    const char* name;  // "aten::linear"
    /// Number of operations that enclose this operation.
    int64_t depth;
    /// All tensors, including tensors in lists.
    Tensors inputs, outputs;
  };
  /// The hook does not report operations that the function itself calls.
  using Function = std::function<void(const Op&)>;

  explicit OpHook(Function function);
  ~OpHook();
  OpHook(const OpHook&) = delete;
  OpHook& operator=(const OpHook&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace tern
