#include "tern/kernels/boxes/nms_math.h"
#include "tern/kernels/launch.cuh"

namespace tern {
namespace {

constexpr int64_t kBits = 64;  // boxes per word

template <class T>
__device__ NmsBox<T> nms_box(const T* at) {
  return {at[0], at[1], at[2], at[3], nms_area(at[0], at[1], at[2], at[3])};
}

/// A block compares kThreads boxes, one per thread, with kBits boxes. Bit b of
/// word `column` of a row says that the row's box suppresses box
/// `column * kBits + b`, which comes after it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    nms_compare_kernel(const NmsArgs args, T threshold) {
  const int64_t words = (args.count + kBits - 1) / kBits;
  const int64_t row_blocks = (args.count + kThreads - 1) / kThreads;
  const int64_t column = blockIdx.x % words;
  const int64_t row_block = blockIdx.x / words % row_blocks;
  const int64_t image = blockIdx.x / words / row_blocks;
  const int64_t first = column * kBits;
  if (first + kBits <= row_block * kThreads) return;  // all come earlier
  const int64_t* classes = args.classes + image * args.count;
  const T* boxes = static_cast<const T*>(args.boxes) + image * args.count * 4;
  const int64_t here = min(kBits, args.count - first);

  __shared__ NmsBox<T> others[kBits];
  __shared__ int64_t other_classes[kBits];
  if (threadIdx.x < here) {
    others[threadIdx.x] = nms_box(boxes + (first + threadIdx.x) * 4);
    other_classes[threadIdx.x] = classes[first + threadIdx.x];
  }
  __syncthreads();

  const int64_t row = row_block * kThreads + threadIdx.x;
  if (row >= args.count) return;
  const NmsBox<T> box = nms_box(boxes + row * 4);
  const int64_t box_class = classes[row];
  uint64_t word = 0;
  for (int64_t b = row < first ? 0 : row - first + 1; b < here; ++b) {
    const bool goes =
        other_classes[b] == box_class && suppresses(box, others[b], threshold);
    word |= static_cast<uint64_t>(goes) << b;
  }
  args.suppressed[(image * args.count + row) * words + column] = word;
}

/// A block processes the boxes of one image, one word at a time: one thread
/// decides which are kept, then all threads remove from the later words the
/// boxes that these suppress.
__global__ void __launch_bounds__(kThreads)
    nms_keep_kernel(const NmsArgs args) {
  const int64_t words = (args.count + kBits - 1) / kBits;
  const int64_t image = blockIdx.x;
  const uint64_t* suppressed = args.suppressed + image * args.count * words;
  const int64_t* classes = args.classes + image * args.count;
  uint64_t* gone = args.gone + image * words;
  __shared__ uint64_t own[kBits];  // suppression within this word
  __shared__ uint64_t kept;
  for (int64_t i = threadIdx.x; i < words; i += kThreads) gone[i] = 0;
  for (int64_t word = 0; word < words; ++word) {
    const int64_t first = word * kBits;
    const int64_t here = min(kBits, args.count - first);
    if (threadIdx.x < here) {
      own[threadIdx.x] = suppressed[(first + threadIdx.x) * words + word];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t lost = gone[word];
      kept = 0;
      for (int64_t b = 0; b < here; ++b) {
        if ((lost >> b & 1) != 0 || classes[first + b] < 0) continue;
        kept |= uint64_t{1} << b;
        lost |= own[b];
      }
    }
    __syncthreads();
    const uint64_t keeps = kept;
    if (threadIdx.x < here) {
      args.keep[image * args.count + first + threadIdx.x] =
          (keeps >> threadIdx.x & 1) != 0;
    }
    for (int64_t i = word + 1 + threadIdx.x; i < words; i += kThreads) {
      uint64_t lost = gone[i];
      for (int64_t b = 0; b < here; ++b) {
        if ((keeps >> b & 1) != 0) lost |= suppressed[(first + b) * words + i];
      }
      gone[i] = lost;
    }
    __syncthreads();
  }
}

template <class T>
cudaError_t nms_of(const NmsArgs& args, cudaStream_t stream) {
  const int64_t words = (args.count + kBits - 1) / kBits;
  const int64_t row_blocks = (args.count + kThreads - 1) / kThreads;
  const int64_t blocks = args.images * row_blocks * words;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const cudaError_t status = launch(
      nms_compare_kernel<T>,
      blocks,
      stream,
      args,
      static_cast<T>(args.threshold));
  if (status != cudaSuccess) return status;
  return launch(nms_keep_kernel, args.images, stream, args);
}

}  // namespace

int nms_cuda(const NmsArgs& args, CUstream_st* stream) {
  return args.is_double ? nms_of<double>(args, stream)
                        : nms_of<float>(args, stream);
}

}  // namespace tern
