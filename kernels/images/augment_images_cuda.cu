#include "tern/kernels/images/augment_images_math.h"
#include "tern/kernels/launch.cuh"

namespace tern {
namespace {

/// Each thread computes one pixel; the blocks of an image are adjacent.
template <class Out, int kChannels>
__global__ void __launch_bounds__(kThreads)
    augment_kernel(const AugmentArgs args, int32_t blocks_per_image) {
  const int32_t image = blockIdx.x / blocks_per_image;
  __shared__ uint8_t table[256];
  __shared__ AugmentRecord record;
  if (threadIdx.x < 256) {
    table[threadIdx.x] = args.tables[int64_t{image} * 256 + threadIdx.x];
  }
  if (threadIdx.x == 0) record = args.records[image];
  __syncthreads();
  const int32_t pixels = args.height * args.width;
  const int64_t place =
      int64_t{blockIdx.x % blocks_per_image} * kThreads + threadIdx.x;
  if (place >= pixels) return;
  const int64_t first = int64_t{image} * pixels * kChannels;
  uint8_t pixel[kChannels];
  augment_pixel<kChannels>(
      args,
      record,
      args.images + first,
      table,
      static_cast<int32_t>(place / args.width),
      static_cast<int32_t>(place % args.width),
      pixel);
  Out* out = static_cast<Out*>(args.out) + first + place * kChannels;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    if constexpr (sizeof(Out) == 1) {
      out[c] = pixel[c];
    } else {
      out[c] = from_float<Out>(
          static_cast<float>(pixel[c]) * args.scale[c] + args.offset[c]);
    }
  }
}

template <class Out>
int augment(const AugmentArgs& args, cudaStream_t stream) {
  const int32_t pixels = args.height * args.width;
  const int32_t blocks_per_image = (pixels + kThreads - 1) / kThreads;
  return launch(
      args.channels == 3 ? augment_kernel<Out, 3> : augment_kernel<Out, 1>,
      int64_t{args.count} * blocks_per_image,
      stream,
      args,
      blocks_per_image);
}

}  // namespace

int augment_images_cuda(const AugmentArgs& args, CUstream_st* stream) {
  if (args.to_bytes) return augment<uint8_t>(args, stream);
  switch (args.out_type) {
    case ElementType::float16:
      return augment<__half>(args, stream);
    case ElementType::bfloat16:
      return augment<__nv_bfloat16>(args, stream);
    default:
      return augment<float>(args, stream);
  }
}

}  // namespace tern
