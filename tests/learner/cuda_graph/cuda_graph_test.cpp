#include <cstdlib>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/load_cuda.h"
#include "tern/learner/cuda_graph/device_graph.h"
#include "tern/tests/support/expect_error.h"

namespace tern::cuda_graph_test {
namespace {

const auto make = [] { make_cuda_graph(torch::Device(torch::kCUDA, 0)); };

// A single test, because the library is searched only once.
TEST(CudaGraph, NamesTheVariableForItsLibraryAndFindsTheLibrary) {
  ::setenv("TERN_CUDA_GRAPH_LIBRARY", "/no/such/library.so", 1);
  expect_error<c10::Error>(
      make,
      {"a CUDA graph needs libtern_cuda_graph.so",
       "TERN_CUDA_GRAPH_LIBRARY",
       "/no/such/library.so"});
  ::unsetenv("TERN_CUDA_GRAPH_LIBRARY");
  if (load_cuda()) {
    EXPECT_NO_THROW(make());
  } else {
    // The error comes from LibTorch, so the library and its dependencies are
    // loaded.
    expect_error<c10::Error>(make, {"CUDA driver"});
  }
}

}  // namespace
}  // namespace tern::cuda_graph_test
