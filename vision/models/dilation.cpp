#include "tern/vision/models/dilation.h"

#include <fmt/format.h>
#include <torch/types.h>

namespace tern {

DilationPlan::DilationPlan(int64_t output_stride, int64_t stem_stride)
    : output_stride_(output_stride), stride_(stem_stride) {
  TORCH_CHECK_VALUE(
      output_stride == 8 || output_stride == 16 || output_stride == 32,
      fmt::format(
          "[DilationPlan] output_stride is {}; expected 8, 16 or 32.",
          output_stride));
}

LayerDilation DilationPlan::next(int64_t stride) {
  const int64_t before = dilation_;
  if (stride_ * stride <= output_stride_) {
    stride_ *= stride;
    return {stride, before, before};
  }
  dilation_ *= stride;
  return {1, before, dilation_};
}

}  // namespace tern
