#pragma once

#include <cstdint>

namespace tern {

/// c10::ScalarType for the files that include nothing of LibTorch.
enum class ElementType : int32_t { float32, float64, float16, bfloat16 };

// static: see convert_loops.h.
static constexpr int64_t size_in_bytes(ElementType type) {
  switch (type) {
    case ElementType::float64:
      return 8;
    case ElementType::float32:
      return 4;
    default:
      return 2;
  }
}

}  // namespace tern
