#include "tern/data/support/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "tern/kernels/load_cuda.h"

namespace tern {

namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// Reads "MemAvailable:   123 kB" from /proc/meminfo.
int64_t host_memory_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    int64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

int64_t number_in(const char* path) {
  int64_t value = kUnknown;
  std::ifstream file(path);
  return file >> value ? value : kUnknown;
}

// In a container, its own cgroup is at the root; "max" or a huge number means
// no limit.
int64_t group_memory_available() {
  constexpr const char* kLimitAndUse[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
       "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit, use] : kLimitAndUse) {
    const int64_t most = number_in(limit), now = number_in(use);
    if (most < kUnknown && now < kUnknown) {
      return std::max<int64_t>(0, most - now);
    }
  }
  return kUnknown;
}

// Not every out-of-memory error has its own type: the CPU allocator, the CUDA
// runtime and its libraries only have a message.
constexpr std::array<std::string_view, 4> kWords = {
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED"};

std::atomic<bool> keeps_freed_memory = false;

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  const std::string_view text = error.what();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) ||
         dynamic_cast<const std::bad_alloc*>(&error) ||
         std::any_of(kWords.begin(), kWords.end(), [&](std::string_view words) {
           return text.find(words) != std::string_view::npos;
         });
}

void give_back_unused_memory(torch::Device device) {
  if (!device.is_cpu()) {
    c10::getDeviceAllocator(device.type())->emptyCache();
    return;
  }
#ifdef __GLIBC__
  if (keeps_freed_memory) malloc_trim(0);
#endif
}

int64_t available_memory(torch::Device device) {
  if (device.is_cpu()) {
    return std::min(host_memory_available(), group_memory_available());
  }
  check_device_exists(
      "available_memory",
      device,
      "pass an existing device, or the CPU");
#if TORCH_VERSION_MINOR < 10
  return kUnknown;  // needs the device's own library
#else
  using c10::CachingAllocator::StatType;
  // Before this call the allocator has no device.
  at::globalContext().lazyInitDevice(device.type());
  auto* const allocator = c10::getDeviceAllocator(device.type());
  const auto index = std::max<c10::DeviceIndex>(device.index(), 0);
  const auto stats = allocator->getDeviceStats(index);
  constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
  const auto kept =
      stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
  return static_cast<int64_t>(allocator->getMemoryInfo(index).first) + kept;
#endif
}

void use_huge_pages(const void* data, size_t bytes) {
#ifdef __linux__
  // MADV_COLLAPSE would ignore this setting.
  static const bool is_allowed = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string modes;
    return std::getline(file, modes) &&
           modes.find("[never]") == std::string::npos;
  }();
  if (!is_allowed) return;
  constexpr size_t kPage = size_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1
  const size_t before = reinterpret_cast<uintptr_t>(data) % kPage;
  auto* const begin = static_cast<char*>(const_cast<void*>(data)) - before;
  for (size_t at = 0; at < before + bytes; at += kPage) {
    madvise(begin + at, kPage, MADV_HUGEPAGE);
    madvise(begin + at, kPage, kCollapse);
  }
#endif
}

int64_t tensor_bytes(const torch::Tensor& tensor) {
  if (!tensor.is_sparse()) return static_cast<int64_t>(tensor.nbytes());
  return tensor_bytes(tensor._indices()) + tensor_bytes(tensor._values());
}

std::string bytes_text(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (size < 1e3) return fmt::format("{} B", bytes);
  if (size < 1e6) return fmt::format("{:.1f} kB", size / 1e3);
  if (size < 1e9) return fmt::format("{:.1f} MB", size / 1e6);
  return fmt::format("{:.2f} GB", size / 1e9);
}

void keep_freed_memory() {
#ifdef __GLIBC__
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* name :
         {"MALLOC_TRIM_THRESHOLD_",
          "MALLOC_MMAP_THRESHOLD_",
          "MALLOC_MMAP_MAX_",
          "MALLOC_TOP_PAD_",
          "GLIBC_TUNABLES"}) {
      if (std::getenv(name)) return;
    }
    // Never gives a block its own mapping, which would be unmapped when the
    // block is freed, and never shrinks the heap.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
    keeps_freed_memory = true;
  });
#endif
}

}  // namespace tern
