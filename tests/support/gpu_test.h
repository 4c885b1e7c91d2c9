#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "tern/kernels/load_cuda.h"

namespace tern {

/// For SetUp: without a GPU, skips the test, or fails it if the environment
/// variable TERN_NEEDS_GPU requires a GPU.
inline void need_gpu(bool has_gpu) {
  if (has_gpu) return;
  if (std::getenv("TERN_NEEDS_GPU")) {
    FAIL() << "[GpuTest] no CUDA device can be used; TERN_NEEDS_GPU says that "
              "this machine has one. `nvidia-smi` shows what is wrong with it; "
              "unset the variable to skip these tests.";
  }
  GTEST_SKIP() << "needs a CUDA device";
}

/// Base of the tests that need a GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override { need_gpu(load_cuda()); }
};

}  // namespace tern
