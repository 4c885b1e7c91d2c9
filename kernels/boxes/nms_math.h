#pragma once

#include "tern/kernels/kernel_args.h"

// Arithmetic of two boxes in non-maximum suppression, shared by CPU and CUDA,
// in the order of torchvision's CPU kernel, so that the result is
// bit-identical.
namespace tern {

template <class T>
struct NmsBox {
  T x1, y1, x2, y2, area;
};

template <class T>
TERN_ELEMENT_MATH T larger(T a, T b) {
  return a < b ? b : a;
}
template <class T>
TERN_ELEMENT_MATH T smaller(T a, T b) {
  return b < a ? b : a;
}

template <class T>
TERN_ELEMENT_MATH T nms_area(T x1, T y1, T x2, T y2) {
  return (x2 - x1) * (y2 - y1);
}

/// True if `kept` suppresses `other`. False for NaN, as for two boxes without
/// area.
template <class T>
TERN_ELEMENT_MATH bool
suppresses(const NmsBox<T>& kept, const NmsBox<T>& other, T threshold) {
  const T width =
      larger(T{0}, smaller(kept.x2, other.x2) - larger(kept.x1, other.x1));
  const T height =
      larger(T{0}, smaller(kept.y2, other.y2) - larger(kept.y1, other.y1));
  const T both = width * height;
  return both / (kept.area + other.area - both) > threshold;
}

}  // namespace tern
