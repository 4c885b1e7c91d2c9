#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "tern/kernels/kernel_args.h"

// Shared by the CUDA kernels: a list of tensors as kernel argument, vectors of
// 16 bytes, and conversions.
namespace tern {

constexpr int kThreads = 512;
/// Elements per block: 8 rounds of 4 elements per thread. Enough to hide the
/// one-time work of a block, few enough that a small model fills a GPU.
constexpr int64_t kChunk = int64_t{kThreads} * 4 * 8;

/// Kernel arguments may take 32764 bytes with CUDA 12.1 or newer and sm_70 or
/// newer, otherwise 4096; the rest is for the scalars.
#if CUDART_VERSION >= 12010
constexpr int64_t kTableBytes = 30 * 1024;
#else
constexpr int64_t kTableBytes = 3584;
#endif

/// Launches `blocks` blocks of kThreads threads on `stream`.
template <class... Params, class... Args>
cudaError_t launch(
    void (*kernel)(Params...),
    int64_t blocks,
    cudaStream_t stream,
    const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = kThreads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

/// Maximum number of records in a table.
template <class Record>
constexpr int kMostRecords =
    (kTableBytes - 2 * sizeof(int64_t)) / (sizeof(Record) + sizeof(int32_t));

/// Calls `f` with the capacity of a table for `count` records, as a
/// std::integral_constant: a small one for small networks, since every launch
/// copies all its arguments; otherwise `kMost`. Longer lists take several
/// tables.
template <int kMost, class F>
auto with_capacity(int64_t count, const F& f) {
  constexpr int kFew = 16;
  if (count <= kFew) return f(std::integral_constant<int, kFew>());
  return f(std::integral_constant<int, kMost>());
}

/// A list of tensors passed as kernel argument: needs no copy to the device,
/// and nothing must be kept alive.
template <class RecordType, int kCapacity>
struct TensorTable {
  using Record = RecordType;
  int32_t count;
  /// The first block of every tensor, and the total number of blocks.
  int32_t first_block[kCapacity + 1];
  Record records[kCapacity];

  /// Returns the index of the tensor that a block works on.
  __device__ int find(int32_t block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    return low;
  }
};

/// Number of blocks of a tensor: chunks of kChunk elements, none if it is
/// empty.
inline int64_t block_count(int64_t size) {
  return (size + kChunk - 1) / kChunk;
}

/// `for_each_table` with tables of the given capacity.
template <int kCapacity, class Record, class Start>
cudaError_t
for_each_table_of(const Record* records, int64_t count, const Start& start) {
  constexpr int64_t kMaxBlocks = INT32_MAX;
  static_assert(sizeof(TensorTable<Record, kCapacity>) <= kTableBytes);
  TensorTable<Record, kCapacity> table;
  table.count = 0;
  table.first_block[0] = 0;
  cudaError_t status = cudaSuccess;
  const auto flush = [&] {
    const int32_t blocks = table.first_block[table.count];
    if (blocks > 0) status = start(table, blocks);
    table.count = 0;
  };
  for (int64_t i = 0; i < count && status == cudaSuccess; ++i) {
    const int64_t blocks = block_count(records[i].size);
    if (blocks == 0) continue;
    if (blocks > kMaxBlocks) {
      return cudaErrorInvalidValue;  // 2^45 elements exceed any memory
    }
    if (table.count == kCapacity ||
        table.first_block[table.count] + blocks > kMaxBlocks) {
      flush();
    }
    table.records[table.count] = records[i];
    table.first_block[table.count + 1] =
        static_cast<int32_t>(table.first_block[table.count] + blocks);
    ++table.count;
  }
  if (status == cudaSuccess && table.count > 0) flush();
  return status;
}

/// Calls `start(table, blocks)` for tables that together hold all records with
/// elements, until a call returns an error.
template <class Record, class Start>
cudaError_t
for_each_table(const Record* records, int64_t count, const Start& start) {
  int64_t used = 0;
  for (int64_t i = 0; i < count; ++i) used += records[i].size > 0;
  return with_capacity<kMostRecords<Record>>(used, [&](auto capacity) {
    return for_each_table_of<capacity()>(records, count, start);
  });
}

/// kWidth elements that are loaded or stored at once.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

// Through a reference, so that a sanitizer checks the alignment.
template <int kWidth, class T>
__device__ __forceinline__ Pack<T, kWidth> load(const T* from) {
  const auto& there = *reinterpret_cast<const Pack<T, kWidth>*>(from);
  return there;
}

template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const Pack<T, kWidth>& pack) {
#ifdef __CUDA_ARCH__
  // A plain assignment is split into stores of single words.
  if constexpr (sizeof(pack) == 16) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    __stwb(reinterpret_cast<uint4*>(to), words);
    return;
  } else if constexpr (sizeof(pack) == 8) {
    uint2 words;
    memcpy(&words, &pack, sizeof(words));
    __stwb(reinterpret_cast<uint2*>(to), words);
    return;
  }
#endif
  auto& there = *reinterpret_cast<Pack<T, kWidth>*>(to);
  there = pack;
}

/// True if packs of kWidth elements of this size may begin at `pointer`.
__device__ __forceinline__ bool
is_aligned(const void* pointer, int64_t element_size, int width) {
  return reinterpret_cast<uintptr_t>(pointer) % (element_size * width) == 0;
}

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float value) {
  return __float2bfloat16_rn(value);
}

}  // namespace tern
