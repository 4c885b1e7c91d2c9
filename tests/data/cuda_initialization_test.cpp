#include <cstdlib>
#include <dlfcn.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/data/data_loader.h"
#include "tern/kernels/load_cuda.h"

// What initializes CUDA, and what does not: a process that is forked later
// cannot use a GPU. tests/support/cuda_driver.c stands in for the driver.
namespace tern::cuda_initialization_test {
namespace {

/// How often the driver was called; -1 where it is not the stand-in.
int driver_calls() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  auto* const calls =
      driver ? static_cast<int*>(dlsym(driver, "tern_driver_calls")) : nullptr;
  return calls ? *calls : -1;
}

class CudaInitialization : public testing::Test {
 protected:
  void SetUp() override {
    // CTest lets the loader find the stand-in.
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver || !dlsym(driver, "tern_driver_calls")) {
      GTEST_SKIP() << "LD_LIBRARY_PATH does not name the stand-in's folder";
    }
    // Beside the driver there is LibTorch's CUDA library.
    if (!dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) {
      GTEST_SKIP() << "this LibTorch has no CUDA";
    }
  }
};

// One test: what has been initialized stays so.
TEST_F(CudaInitialization, TheDriverIsLeftAloneUntilADeviceIsAskedFor) {
  const auto data = std::make_shared<TensorDataset>(
      Tensors{torch::rand({64, 2})},
      Tensors{torch::zeros({64}, torch::kLong)});
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(data, {.batch_size = 8, .workers = workers});
    for (const Batch& batch : loader) {
      EXPECT_TRUE(batch.inputs[0].is_cpu());
    }
  }
  EXPECT_FALSE(is_cuda_in_use());
  EXPECT_EQ(driver_calls(), 0);
  EXPECT_EQ(DataBunch::default_device(), torch::kCPU);
  EXPECT_GT(driver_calls(), 0);
}

}  // namespace
}  // namespace tern::cuda_initialization_test
