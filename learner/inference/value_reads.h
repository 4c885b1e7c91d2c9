#pragma once

#include <ATen/record_function.h>

namespace tern {

/// Detects whether this thread reads tensor values during its lifetime. A trace
/// would fix the decisions that a network bases on such values. Private to
/// Tern.
class ValueReads {
 public:
  ValueReads();
  ~ValueReads();
  ValueReads(const ValueReads&) = delete;
  ValueReads& operator=(const ValueReads&) = delete;

  /// True if values were read since construction. Do not nest these objects:
  /// creating another object resets the flag.
  bool is_any() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace tern
