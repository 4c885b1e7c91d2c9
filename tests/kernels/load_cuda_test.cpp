#include "tern/kernels/load_cuda.h"

#include <dlfcn.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

namespace tern::test::load_cuda_test {
namespace {

TEST(LoadCuda, AgreesWithLibTorchFromEveryThread) {
  const bool available = load_cuda();
  EXPECT_EQ(available, torch::cuda::is_available());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(load_cuda(), available); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST(LoadCuda, DoesNotLoadTheCudaLibraryWithoutADriver) {
  if (access("/dev/nvidiactl", F_OK) == 0 ||
      dlopen("libcuda.so.1", RTLD_LAZY)) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  EXPECT_FALSE(load_cuda());
  EXPECT_EQ(dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace tern::test::load_cuda_test
