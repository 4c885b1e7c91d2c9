#include <cstdlib>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/types.h>

#include "tern/kernels/load_cuda.h"
#include "tern/learner/distributed/backends.h"
#include "tern/tests/support/expect_error.h"

namespace tern::nccl_group_test {
namespace {

const auto make = [] {
  make_nccl_group(
      {c10::make_intrusive<::c10d::HashStore>(),
       0,
       1,
       std::chrono::seconds(5)});
};

// A single test, because the library is searched only once.
TEST(NcclGroup, NamesTheVariableForItsLibraryAndFindsTheLibrary) {
  ::setenv("TERN_NCCL_LIBRARY", "/no/such/library.so", 1);
  expect_error<c10::Error>(make, {"TERN_NCCL_LIBRARY", "/no/such/library.so"});
  ::unsetenv("TERN_NCCL_LIBRARY");
  if (load_cuda()) GTEST_SKIP() << "There is a GPU.";
  // The error comes from NCCL, so the library and its dependencies are loaded.
  expect_error<c10::Error>(make, {"no GPUs found"});
}

}  // namespace
}  // namespace tern::nccl_group_test
