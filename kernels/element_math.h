#pragma once

// Marks arithmetic that the CPU and the CUDA kernels share. Internal linkage:
// such files are compiled for several instruction sets.
#ifdef __CUDACC__
#define TERN_ELEMENT_MATH static __host__ __device__ __forceinline__
#else
#define TERN_ELEMENT_MATH static inline __attribute__((always_inline))
#endif
