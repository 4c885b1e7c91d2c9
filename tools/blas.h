#pragma once

#include <dlfcn.h>
#include <string>

#include <ATen/Parallel.h>

namespace tern::tools {

/// Returns the library whose matrix product LibTorch calls in this program, or
/// "".
///
/// It should be LibTorch's own. Debian's OpenCV depends on libblas.so.3, which
/// exports the same names. If the loader finds that library first, LibTorch
/// calls it, and a matrix product is up to 37 times slower.
inline std::string blas_library() {
  void* sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (!sgemm || dladdr(sgemm, &info) == 0 || !info.dli_fname) return "";
  return info.dli_fname;
}

/// True if LibTorch calls its own matrix product: the one that libtorch_cpu.so
/// or a library linked into it exports.
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
