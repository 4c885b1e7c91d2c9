#pragma once

#include <dlfcn.h>
#include <string>

namespace tern::tools {

/// The library whose matrix product LibTorch calls in this program, or "".
///
/// It has to be libtorch_cpu.so. Debian's OpenCV brings libblas.so.3, which
/// exports the same names; if that one comes first in the loader's order,
/// LibTorch calls it, and a matrix product is up to 37 times slower.
inline std::string blas_library() {
  void* sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (!sgemm || dladdr(sgemm, &info) == 0 || !info.dli_fname) return "";
  return info.dli_fname;
}

}  // namespace tern::tools
