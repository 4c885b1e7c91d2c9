#pragma once

#include <string>
#include <vector>

namespace tern::tools {

/// What the NVIDIA driver says, without the CUDA runtime or LibTorch.
struct CudaReport {
  bool has_gpu = false;     // an NVIDIA device on the PCI bus
  bool has_driver = false;  // libcuda.so.1 loads
  int driver_version = 0;   // the newest CUDA it can run, 13000 for 13.0
  std::string error;        // the driver's own words if it does not start
  std::vector<std::string> devices;
};

CudaReport ask_cuda_driver();

}  // namespace tern::tools
