#pragma once

#include <dlfcn.h>
#include <string>

#include <ATen/Parallel.h>

namespace tern::tools {

/// The library whose matrix product LibTorch calls in this program, or "".
///
/// It has to be LibTorch's. Debian's OpenCV brings libblas.so.3, which exports
/// the same names; if that one comes first in the loader's order, LibTorch
/// calls it, and a matrix product is up to 37 times slower.
inline std::string blas_library() {
  void* sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (!sgemm || dladdr(sgemm, &info) == 0 || !info.dli_fname) return "";
  return info.dli_fname;
}

/// Whether it is LibTorch's: what libtorch_cpu.so, or a library that it was
/// linked with, exports, and nobody took over.
inline bool has_blas_of_libtorch() {
  Dl_info info{};
  const auto address = reinterpret_cast<void*>(&at::get_num_threads);
  if (dladdr(address, &info) == 0 || !info.dli_fname) return false;
  void* libtorch = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!libtorch) return false;
  void* sgemm = dlsym(libtorch, "sgemm_");
  dlclose(libtorch);
  return sgemm && sgemm == dlsym(RTLD_DEFAULT, "sgemm_");
}

}  // namespace tern::tools
