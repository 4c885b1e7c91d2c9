#pragma once

#include <array>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/kernels/cpu_isa.h"

namespace tern::test {

constexpr std::array kCpuIsas = {
    CpuIsa::baseline,
    CpuIsa::avx2,
    CpuIsa::avx512};

/// Tests of a kernel that may change the instruction set in use and the number
/// of threads.
class CpuKernel : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(7); }
  void TearDown() override {
    set_cpu_isa(best_cpu_isa());
    at::set_num_threads(threads_);
  }

 private:
  torch::NoGradGuard no_grad_;
  int threads_ = at::get_num_threads();
};

}  // namespace tern::test
