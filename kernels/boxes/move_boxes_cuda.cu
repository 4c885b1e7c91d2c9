#include "tern/kernels/boxes/move_boxes_math.h"
#include "tern/kernels/launch.cuh"

namespace tern {
namespace {

/// Each thread moves a box or a point.
template <bool kIsBox>
__global__ void __launch_bounds__(kThreads) move_kernel(const MoveArgs args) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= args.count) return;
  if constexpr (kIsBox) {
    move_box(args, row);
  } else {
    move_point(args, row);
  }
}

template <bool kIsBox>
int move(const MoveArgs& args, cudaStream_t stream) {
  const int64_t blocks = (args.count + kThreads - 1) / kThreads;
  return launch(move_kernel<kIsBox>, blocks, stream, args);
}

}  // namespace

int move_boxes_cuda(const MoveArgs& args, CUstream_st* stream) {
  return move<true>(args, stream);
}

int move_points_cuda(const MoveArgs& args, CUstream_st* stream) {
  return move<false>(args, stream);
}

}  // namespace tern
