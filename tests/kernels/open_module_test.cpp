#include <cmath>
#include <cstdlib>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tern/kernels/load_cuda.h"
#include "tern/tests/support/expect_error.h"

namespace tern::open_module_test {
namespace {

// Opens the library at `place`, or on the default search path if nullptr.
void* open(const char* place, const char* library, const char* function) {
  place ? ::setenv("TERN_TEST_LIBRARY", place, 1)
        : ::unsetenv("TERN_TEST_LIBRARY");
  return open_module(library, "TERN_TEST_LIBRARY", "a test", function);
}

TEST(OpenModule, FindsAFunctionOnTheLoadersSearchPath) {
  auto* const root =
      reinterpret_cast<double (*)(double)>(open(nullptr, "libm.so.6", "sqrt"));
  EXPECT_EQ(root(9), 3);
}

TEST(OpenModule, OpensTheFileThatTheVariableNames) {
  EXPECT_NE(open("libm.so.6", "libtern_none.so", "sqrt"), nullptr);
}

TEST(OpenModule, ReportsWhatNeedsTheLibraryAndHowToSetItsPath) {
  expect_error<c10::Error>(
      [] { open(nullptr, "libtern_none.so", "sqrt"); },
      {"a test needs libtern_none.so",
       "set TERN_TEST_LIBRARY to its path",
       "libtern_none.so: cannot open"});
}

TEST(OpenModule, ReportsAMissingFunction) {
  expect_error<c10::Error>(
      [] { open("libm.so.6", "libtern_none.so", "no_such_function"); },
      {"a test needs libtern_none.so", "no_such_function"});
}

}  // namespace
}  // namespace tern::open_module_test
