#pragma once

#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <system_error>

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

/// Whether a library is libtorch_cpu.so, or one beside it, as on Arm.
inline bool is_libtorchs(const std::filesystem::path& library) {
  Dl_info info{};
  const auto address = reinterpret_cast<void*>(&at::get_num_threads);
  if (dladdr(address, &info) == 0 || !info.dli_fname) return false;
  const std::filesystem::path libtorch = info.dli_fname;
  std::error_code none;
  return std::filesystem::equivalent(
      library.parent_path(),
      libtorch.parent_path(),
      none);
}

}  // namespace tern::tools
