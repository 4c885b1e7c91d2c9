#include <cmath>
#include <cstdlib>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tern/kernels/load_cuda.h"
#include "tern/tests/support/expect_error.h"

namespace tern::open_module_test {
namespace {

// Looks where `place` says; nullptr: where every program looks.
void* open(const char* place, const char* library, const char* function) {
  place ? ::setenv("TERN_TEST_LIBRARY", place, 1)
        : ::unsetenv("TERN_TEST_LIBRARY");
  return open_module(library, "TERN_TEST_LIBRARY", "a test", function);
}

TEST(OpenModule, FindsAFunctionWhereTheLoaderLooks) {
  auto* const root =
      reinterpret_cast<double (*)(double)>(open(nullptr, "libm.so.6", "sqrt"));
  EXPECT_EQ(root(9), 3);
}

TEST(OpenModule, TakesTheFileThatTheVariableNames) {
  EXPECT_NE(open("libm.so.6", "libtern_none.so", "sqrt"), nullptr);
}

TEST(OpenModule, SaysWhatNeedsWhichLibraryAndHowToNameIt) {
  expect_error<c10::Error>(
      [] { open(nullptr, "libtern_none.so", "sqrt"); },
      {"a test needs libtern_none.so",
       "set TERN_TEST_LIBRARY to its path",
       "libtern_none.so: cannot open"});
}

TEST(OpenModule, SaysWhichFunctionALibraryLacks) {
  expect_error<c10::Error>(
      [] { open("libm.so.6", "libtern_none.so", "no_such_function"); },
      {"a test needs libtern_none.so", "no_such_function"});
}

}  // namespace
}  // namespace tern::open_module_test
