#pragma once

#include <cstdint>
#include <functional>

#include <ATen/record_function.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// Sees the operations that this thread calls while it lives, each after it was
/// made. One at a time in a thread.
class OpHook {
 public:
  struct Op {
    const char* name;  // "aten::linear"
    /// How many operations it is made inside of.
    int64_t depth;
    /// All tensors, those of lists too.
    Tensors inputs, outputs;
  };
  /// The operations that it calls are not seen.
  using Function = std::function<void(const Op&)>;

  explicit OpHook(Function function);
  ~OpHook();
  OpHook(const OpHook&) = delete;
  OpHook& operator=(const OpHook&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace tern
