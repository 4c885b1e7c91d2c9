#include <cstdio>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/data_loader.h"
#include "tern/kernels/load_cuda.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::fork_cuda_test {
namespace {

/// Returns true if `f` returned true in a child process.
bool in_a_child(const std::function<bool()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    bool result = false;
    try {
      result = f();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(result ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// This process itself must not initialize CUDA.
class ForkCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (is_cuda_in_use()) {
      GTEST_SKIP() << "earlier tests in this process have used CUDA; run this "
                      "test file alone, as CTest does";
    }
    need_gpu(in_a_child([] { return load_cuda(); }));
  }
};

TEST_F(ForkCudaTest, AChildOfAProcessWithLoadersCanUseTheGpu) {
  const auto data = std::make_shared<TensorDataset>(
      Tensors{torch::arange(64)},
      Tensors{torch::zeros({64}, torch::kLong)});
  DataLoader loader(data, {.batch_size = 8, .workers = 0});
  for (const Batch& batch : loader) EXPECT_EQ(batch.size(), 8);
  EXPECT_TRUE(in_a_child([&] {
    int64_t sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (const Batch& batch : loader) {
        sum += batch.to(torch::kCUDA).inputs[0].sum().item<int64_t>();
      }
    }
    return sum == 2 * 63 * 64 / 2;
  }));
}

}  // namespace
}  // namespace tern::fork_cuda_test
