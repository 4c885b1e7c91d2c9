#include "tern/kernels/launch.cuh"

namespace tern {
namespace {

struct Channels {
  float scale[kMaxCudaChannels];
  float offset[kMaxCudaChannels];
};

/// Works in packs of kWidth elements; the first block handles the remainder.
template <class Out, int kWidth>
__global__ void __launch_bounds__(kThreads) normalize_kernel(
    const uint8_t* __restrict__ images,
    Out* __restrict__ out,
    int64_t size,
    int32_t channels,
    const __grid_constant__ Channels constants) {
  // Neighboring threads read different channels. Shared memory serves them at
  // once; kernel arguments would be serialized.
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
  const int64_t packed = size - size % kWidth;
  for (; i < packed; i += stride) {
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
  if (blockIdx.x == 0 && threadIdx.x < size - packed) {
    const int64_t last = packed + threadIdx.x;
    const auto c = static_cast<int32_t>(last % channels);
    out[last] = from_float<Out>(
        static_cast<float>(images[last]) * scale[c] + offset[c]);
  }
}

template <class Out>
int normalize(const NormalizeArgs& args, cudaStream_t stream) {
  constexpr int kWidth = 4;
  const bool is_aligned =
      reinterpret_cast<uintptr_t>(args.images) % kWidth == 0 &&
      reinterpret_cast<uintptr_t>(args.out) % (kWidth * sizeof(Out)) == 0;
  Channels constants;
  for (int64_t c = 0; c < args.channels; ++c) {
    constants.scale[c] = args.scale[c];
    constants.offset[c] = args.offset[c];
  }
  const int64_t packs = args.size / (is_aligned ? kWidth : 1);
  const int64_t blocks = packs / kThreads + 1;
  constexpr int64_t kMaxBlocks = 1 << 16;
  return launch(
      is_aligned ? normalize_kernel<Out, kWidth> : normalize_kernel<Out, 1>,
      blocks < kMaxBlocks ? blocks : kMaxBlocks,
      stream,
      args.images,
      static_cast<Out*>(args.out),
      args.size,
      static_cast<int32_t>(args.channels),
      constants);
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
