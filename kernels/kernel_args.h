#pragma once

#include <cstdint>

struct CUstream_st;

// Shared by the kernels' public headers, their CPU code and their CUDA files.
// The first two work with tensors; the CUDA files receive the pointers defined
// here. Includes nothing from LibTorch or CUDA. The macro marks functions that
// both sides use; they have internal linkage, because each side compiles its
// own copy.
#ifdef __CUDACC__
#define TERN_ELEMENT_MATH static __host__ __device__ __forceinline__
#else
#define TERN_ELEMENT_MATH static inline __attribute__((always_inline))
#endif

namespace tern {

/// c10::ScalarType for files that do not include LibTorch.
enum class ElementType : int32_t { float32, float64, float16, bfloat16 };

constexpr int64_t size_in_bytes(ElementType type) {
  return type == ElementType::float64   ? 8
         : type == ElementType::float32 ? 4
                                        : 2;
}

// ---- Optimizers ----

/// Every k-th step moves the slow weights towards the parameters by the
/// fraction `alpha` of their distance, and copies them to the parameters (Zhang
/// et al. 2019, "Lookahead Optimizer"). k = 0: never.
struct LookaheadArgs {
  int64_t k = 0;
  double alpha = 0.5;
};

struct FusedSgdArgs {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  /// false: L2, added to the gradient. true: `param *= 1 - lr * weight_decay`.
  bool decoupled_weight_decay = false;
  /// If not 0, uses LARS (You et al. 2017), with a separate learning rate for
  /// each tensor:
  /// `lr * trust_coeff * |param| / (|grad| + weight_decay * |param| + eps)`.
  double trust_coeff = 0, eps = 1e-8;
  /// Limits the learning rate of each tensor to `lr` (LARC).
  bool clip = true;
  LookaheadArgs lookahead = {};
};

struct FusedAdamArgs {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;
  /// false: Adam, L2 added to the gradient. true: AdamW.
  bool decoupled_weight_decay = false;
  /// RAdam (Liu et al. 2019): uses only momentum while the variance of the
  /// second moment is unknown, then scales steps by the rectification term.
  bool rectified = false;
  /// LAMB (You et al. 2019): multiplies each tensor's step by |param| / |step|,
  /// at most 10. Not with amsgrad.
  bool trust_ratio = false;
  LookaheadArgs lookahead = {};
};

struct GradTensor {
  void* data;
  int64_t size;
  ElementType type;
};

/// If `inv_scale` is nullptr, only checks; `data` is not written.
/// \return a cudaError_t. The list may be freed when the call returns.
int unscale_and_check_cuda(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf,
    CUstream_st* stream);

// ---- Images ----

/// Padding mode outside an image: black, the nearest edge pixel, or the image
/// reflected at its edge.
enum class Padding { zeros, border, reflection };

/// A rectangle of an image that is erased.
struct PaintedRectangle {
  int32_t top = 0, left = 0, bottom = 0, right = 0;
  uint32_t noise_key = 0;
  /// True: random bytes instead of `value`.
  bool noise = false;
  uint8_t value = 0;
};

/// Hashes three numbers; for random shifts without generator state.
TERN_ELEMENT_MATH uint32_t hash_of(uint32_t key, uint32_t y, uint32_t x) {
  uint32_t h = key ^ (x * 0x9E3779B9u) ^ (y * 0x85EBCA6Bu);
  h = (h ^ (h >> 16)) * 0x7FEB352Du;
  h = (h ^ (h >> 15)) * 0x846CA68Bu;
  return h ^ (h >> 16);
}

/// Maps 16 bits to -1..1.
TERN_ELEMENT_MATH float jitter_of(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits & 0xffff) - 32768) /
         32768.f;
}

/// `out[i] = in[i] * scale[c] + offset[c]`, c = i % channels.
struct NormalizeArgs {
  const uint8_t* images;
  void* out;
  ElementType out_type;
  int64_t size;
  int64_t channels;
  /// In host memory.
  const float *scale, *offset;
};

/// Limited because the CUDA kernel receives the channels as kernel arguments.
constexpr int64_t kMaxCudaChannels = 256;

/// \return a cudaError_t. `scale` and `offset` may be freed when it returns.
int normalize_images_cuda(const NormalizeArgs& args, CUstream_st* stream);

// ---- Boxes ----

/// Non-maximum suppression of `count` boxes in each image, sorted by descending
/// score. Only boxes of the same class are compared; boxes with a negative
/// class are never kept.
struct NmsArgs {
  const void* boxes = nullptr;  // [images, count, 4], float or double
  bool is_double = false;
  const int64_t* classes = nullptr;  // [images, count]
  int64_t images = 0, count = 0;
  double threshold = 0;  // representable in the boxes' dtype
  bool* keep = nullptr;  // [images, count], the result
  /// For CUDA, one bit per box: [images, count, count / 64] and [images, count
  /// / 64], rounded up.
  uint64_t *suppressed = nullptr, *gone = nullptr;
};

/// \return a cudaError_t.
int nms_cuda(const NmsArgs& args, CUstream_st* stream);

}  // namespace tern
