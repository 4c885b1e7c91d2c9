#pragma once

#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Returns one number per spatial dimension. PyTorch allows one number for all
/// dimensions; ONNX does not.
inline Integers per_dimension(Integers numbers, int64_t spatial_rank) {
  if (numbers.size() == 1) numbers.resize(spatial_rank, numbers[0]);
  return numbers;
}

/// Returns ONNX's pads: the beginnings of all dimensions, then the ends.
/// PyTorch has one number for both sides of a dimension.
inline Integers both_sides(const Integers& padding, int64_t spatial_rank) {
  const Integers begins = per_dimension(padding, spatial_rank);
  Integers pads = begins;
  pads.insert(pads.end(), begins.begin(), begins.end());
  return pads;
}

}  // namespace tern::onnx
