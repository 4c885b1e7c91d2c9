#include <cstdlib>
#include <dlfcn.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/data/data_loader.h"
#include "tern/kernels/load_cuda.h"

// What does and does not initialize CUDA: after initialization, forked
// processes cannot use a GPU. tests/support/cuda_driver.c is a stub of the
// driver.
namespace tern::cuda_initialization_test {
namespace {

/// Returns the number of driver calls, or -1 without the stub.
int driver_calls() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  auto* const calls =
      driver ? static_cast<int*>(dlsym(driver, "tern_driver_calls")) : nullptr;
  return calls ? *calls : -1;
}

class CudaInitialization : public testing::Test {
 protected:
  void SetUp() override {
    // CTest sets LD_LIBRARY_PATH so that the loader finds the stub.
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver || !dlsym(driver, "tern_driver_calls")) {
      GTEST_SKIP() << "LD_LIBRARY_PATH does not name the folder of the stub";
    }
    // LibTorch must have its CUDA library as well.
    if (!dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) {
      GTEST_SKIP() << "this LibTorch was built without CUDA";
    }
  }
};

// A single test, because initialization cannot be undone.
TEST_F(CudaInitialization, DoesNotCallTheDriverUntilADeviceIsRequested) {
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
