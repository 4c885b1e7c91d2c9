#include "tern/learner/cuda_graph.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/load_cuda.h"
#include "tern/tests/support/expect_error.h"

namespace tern::cuda_graph_test {
namespace {

const auto make = [] { make_cuda_graph(torch::Device(torch::kCUDA, 0)); };

// In this order: what was found once is kept.
TEST(CudaGraph, SaysHowToNameItsLibraryWhenThatIsMissing) {
  ::setenv("TERN_CUDA_GRAPH_LIBRARY", "/no/such/library.so", 1);
  expect_error<c10::Error>(
      make,
      {"a CUDA graph needs libtern_cuda_graph.so",
       "TERN_CUDA_GRAPH_LIBRARY",
       "/no/such/library.so"});
  ::unsetenv("TERN_CUDA_GRAPH_LIBRARY");
}

// LibTorch's own words: the library was found and all that it links is there.
TEST(CudaGraph, IsFoundAndReachesCudaWithoutAGpu) {
  if (load_cuda()) GTEST_SKIP() << "There is a GPU.";
  expect_error<c10::Error>(make, {"CUDA driver"});
}

}  // namespace
}  // namespace tern::cuda_graph_test
