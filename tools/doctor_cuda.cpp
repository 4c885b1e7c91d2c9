#include "tern/tools/doctor_cuda.h"

#include <dlfcn.h>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace tern::tools {
namespace {

std::string first_word(const std::filesystem::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

bool pci_bus_has_nvidia_gpu() {
  std::error_code none;
  for (const auto& device :
       std::filesystem::directory_iterator("/sys/bus/pci/devices", none)) {
    // Class 03xxxx is a display controller; data centre GPUs are 0302xx.
    if (first_word(device.path() / "vendor") == "0x10de" &&
        first_word(device.path() / "class").starts_with("0x03")) {
      return true;
    }
  }
  return false;
}

/// The few functions of the driver that are needed here.
struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

  template <class... A>
  int call(const char* name, A... arguments) const {
    auto function = reinterpret_cast<int (*)(A...)>(dlsym(library, name));
    return function ? function(arguments...) : -1;
  }
};

std::string describe(const Driver& driver, int index) {
  int device = 0, major = 0, minor = 0;
  size_t bytes = 0;
  char name[256] = {};
  driver.call("cuDeviceGet", &device, index);
  driver.call("cuDeviceGetName", &name[0], int{sizeof(name)}, device);
  driver.call("cuDeviceTotalMem_v2", &bytes, device);
  // 75 and 76: the two halves of the compute capability.
  driver.call("cuDeviceGetAttribute", &major, 75, device);
  driver.call("cuDeviceGetAttribute", &minor, 76, device);
  return fmt::format(
      "cuda:{} {}, {:.0f} GB, sm_{}{}",
      index,
      name,
      static_cast<double>(bytes) / (1 << 30),
      major,
      minor);
}

}  // namespace

CudaReport ask_cuda_driver() {
  CudaReport report;
  report.has_gpu = pci_bus_has_nvidia_gpu();
  const Driver driver;
  report.has_driver = driver.library != nullptr;
  if (!report.has_driver) {
    return report;
  }
  driver.call("cuDriverGetVersion", &report.driver_version);
  if (const int error = driver.call("cuInit", 0u); error != 0) {
    const char* text = nullptr;
    driver.call("cuGetErrorString", error, &text);
    report.error = text ? text : fmt::format("error {}", error);
    return report;
  }
  int count = 0;
  driver.call("cuDeviceGetCount", &count);
  for (int index = 0; index < count; ++index) {
    report.devices.push_back(describe(driver, index));
  }
  return report;
}

}  // namespace tern::tools
