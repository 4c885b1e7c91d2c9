#include "tern/kernels/load_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string_view>
#include <unistd.h>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include "tern/kernels/check.h"

namespace tern {
namespace {

bool has_driver() {
  if (access("/dev/nvidiactl", F_OK) == 0) return true;
  // WSL and Tegra have the driver's library but not this device file.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) return false;
  dlclose(driver);
  return true;
}

bool hides_all_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible && (*visible == '\0' || visible == std::string_view("-1"));
}

/// Path of libtorch_cuda.so, in the folder of the libtorch_cpu.so that this
/// program uses.
std::filesystem::path cuda_library() {
  Dl_info info{};
  const auto address = reinterpret_cast<void*>(&torch::cuda::is_available);
  if (dladdr(address, &info) == 0 || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path() /
         "libtorch_cuda.so";
}

bool load_once() {
  if (!has_driver() || hides_all_gpus()) return false;
  const std::filesystem::path library = cuda_library();
  std::error_code ignored;
  if (!std::filesystem::exists(library, ignored)) {
    return false;  // a LibTorch without CUDA
  }
  if (!dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    TORCH_WARN(
        "[load_cuda] this machine has an NVIDIA driver, but ",
        library.string(),
        " does not load: ",
        dlerror(),
        ". Continuing without CUDA.");
    return false;
  }
  return true;
}

// Also false if the program links LibTorch's CUDA library.
bool load_library() {
  static const bool loaded = load_once();
  return loaded;
}

// Loads only the library. Checking for a device would initialize the driver,
// and processes forked after that cannot use a GPU.
[[maybe_unused]] const bool kLoadedBeforeMain = load_library();

}  // namespace

bool load_cuda() {
  load_library();
  return torch::cuda::is_available();
}

bool is_cuda_in_use() {
  if (!at::Context::hasCUDART()) return false;  // the library is not loaded
  auto* const allocator = c10::getDeviceAllocator(c10::DeviceType::CUDA);
  if (!allocator->initialized()) return false;
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  for (c10::DeviceIndex i = 0; i < cuda.deviceCount(); ++i) {
    constexpr auto kAll =
        static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    if (allocator->getDeviceStats(i).reserved_bytes[kAll].current > 0) {
      return true;
    }
  }
  return false;
}

void check_device_exists(
    const char* where,
    c10::Device device,
    const char* cure) {
  if (!device.is_cuda()) return;
  const auto devices =
      load_cuda() ? static_cast<int64_t>(torch::cuda::device_count()) : 0;
  TERN_CHECK_VALUE(
      std::max<int64_t>(device.index(), 0) < devices,
      "[{}] the device is {}, but this machine has {} usable CUDA devices; {}.",
      where,
      device.str(),
      devices,
      cure);
}

void* open_module(
    const char* library,
    const char* named_by,
    const char* what,
    const char* function) {
  // A name without a folder is searched for along the program's RUNPATH.
  const char* const named = std::getenv(named_by);
  void* const opened = ::dlopen(named ? named : library, RTLD_NOW | RTLD_LOCAL);
  void* const found = opened ? ::dlsym(opened, function) : nullptr;
  if (found) return found;
  const char* const reason = ::dlerror();
  TORCH_CHECK(
      false,
      fmt::format(
          "{} needs {}, which is part of a Tern built with CUDA; set {} to its "
          "path: {}",
          what,
          library,
          named_by,
          reason ? reason : "no reason was given"));
}

}  // namespace tern
