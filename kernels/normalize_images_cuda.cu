#include "tern/kernels/launch.cuh"
#include "tern/kernels/normalize_images_math.h"

namespace tern {
namespace {

struct Channels {
  float scale[kMaxCudaChannels];
  float offset[kMaxCudaChannels];
};

/// `size` in packs of kWidth elements.
template <class Out, int kWidth>
__global__ void __launch_bounds__(kThreads) normalize_kernel(
    const uint8_t* __restrict__ images,
    Out* __restrict__ out,
    int64_t size,
    int32_t channels,
    const __grid_constant__ Channels constants) {
  // Neighbouring threads read different channels: shared memory serves them at
  // once, kernel arguments one after the other.
  __shared__ float scale[kMaxCudaChannels], offset[kMaxCudaChannels];
  for (int c = threadIdx.x; c < channels; c += kThreads) {
    scale[c] = constants.scale[c];
    offset[c] = constants.offset[c];
  }
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * kThreads * kWidth;
  const auto channel_stride = static_cast<int32_t>(stride % channels);
  int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  auto first_channel = static_cast<int32_t>(i % channels);
  for (; i < size; i += stride) {
    const auto bytes = load<kWidth>(images + i);
    Pack<Out, kWidth> pack;
    int32_t c = first_channel;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      pack.values[j] = from_float<Out>(
          static_cast<float>(bytes.values[j]) * scale[c] + offset[c]);
      c = c + 1 == channels ? 0 : c + 1;
    }
    store<kWidth>(out + i, pack);
    first_channel += channel_stride;
    first_channel -= first_channel >= channels ? channels : 0;
  }
}

/// `begin` is 0, or the tail's, whose constants have been turned to fit.
template <class Out, int kWidth>
cudaError_t normalize_range(
    const NormalizeArgs& args,
    const Channels& constants,
    int64_t begin,
    int64_t end,
    cudaStream_t stream) {
  if (begin == end) return cudaSuccess;
  const int64_t packs = (end - begin) / kWidth;
  const int64_t blocks = (packs + kThreads - 1) / kThreads;
  constexpr int64_t kMaxBlocks = 1 << 16;
  return launch(
      normalize_kernel<Out, kWidth>,
      blocks < kMaxBlocks ? blocks : kMaxBlocks,
      stream,
      args.images + begin,
      static_cast<Out*>(args.out) + begin,
      end - begin,
      static_cast<int32_t>(args.channels),
      constants);
}

/// The channels as seen from element `begin`.
Channels channels_from(const NormalizeArgs& args, int64_t begin) {
  Channels out;
  for (int64_t c = 0; c < args.channels; ++c) {
    out.scale[c] = args.scale[(begin + c) % args.channels];
    out.offset[c] = args.offset[(begin + c) % args.channels];
  }
  return out;
}

template <class Out>
int normalize(const NormalizeArgs& args, cudaStream_t stream) {
  constexpr int kWidth = 4;
  const bool aligned =
      reinterpret_cast<uintptr_t>(args.images) % kWidth == 0 &&
      reinterpret_cast<uintptr_t>(args.out) % (kWidth * sizeof(Out)) == 0;
  const int64_t tail = aligned ? args.size - args.size % kWidth : 0;
  const cudaError_t status = normalize_range<Out, kWidth>(
      args,
      channels_from(args, 0),
      0,
      tail,
      stream);
  if (status != cudaSuccess) return status;
  return normalize_range<Out, 1>(
      args,
      channels_from(args, tail),
      tail,
      args.size,
      stream);
}

}  // namespace

int normalize_images_cuda(const NormalizeArgs& args, CUstream_st* stream) {
  switch (args.out_type) {
    case ElementType::float16:
      return normalize<__half>(args, stream);
    case ElementType::bfloat16:
      return normalize<__nv_bfloat16>(args, stream);
    default:
      return normalize<float>(args, stream);
  }
}

}  // namespace tern
