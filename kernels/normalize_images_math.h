#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/element_math.h"

struct CUstream_st;

// Between normalize_images.cpp, which knows tensors, and the kernels, which
// know pointers. Nothing of LibTorch or CUDA is included.
namespace tern {

/// `out[i] = in[i] * scale[c] + offset[c]`, c = i % channels.
struct NormalizeArgs {
  const uint8_t* images;
  void* out;
  ElementType out_type;
  int64_t size;
  int64_t channels;
  /// On the host.
  const float *scale, *offset;
};

/// (x / 255 - mean) / stddev as one multiplication and one addition.
inline void
set_normalize_factors(double mean, double stddev, float& scale, float& offset) {
  scale = static_cast<float>(1 / (255 * stddev));
  offset = static_cast<float>(-mean / stddev);
}

/// Scale and offset written out for `size` elements in a row, a multiple of
/// the channels, so that a vector of elements meets a vector of each.
struct NormalizePattern {
  const float *scale, *offset;
  int64_t size;
};

struct NormalizeLoops {
  /// `images` begins at channel 0.
  void (*normalize)(
      const uint8_t* images,
      void* out,
      ElementType out_type,
      int64_t size,
      const NormalizePattern& pattern);
};

TERN_DECLARE_LOOPS(NormalizeLoops, normalize_loops)

/// The CUDA kernel carries the channels in its arguments.
constexpr int64_t kMaxCudaChannels = 256;

/// \return a cudaError_t. `scale` and `offset` may be freed when it returns.
int normalize_images_cuda(const NormalizeArgs& args, CUstream_st* stream);

}  // namespace tern
