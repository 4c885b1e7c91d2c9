#pragma once

#include <ATen/record_function.h>

namespace tern {

/// Notes whether this thread reads values of tensors while it lives: what a
/// network then decides, a trace decides once and for all. Private to Tern.
class ValueReads {
 public:
  ValueReads();
  ~ValueReads();
  ValueReads(const ValueReads&) = delete;
  ValueReads& operator=(const ValueReads&) = delete;

  /// Since the object was made, and none within it.
  bool is_any() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace tern
