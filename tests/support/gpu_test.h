#pragma once

#include <gtest/gtest.h>

#include "tern/kernels/load_cuda.h"

namespace tern {

/// Base of the tests that need a GPU; elsewhere they are skipped.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!load_cuda()) GTEST_SKIP() << "needs a CUDA device";
  }
};

}  // namespace tern
