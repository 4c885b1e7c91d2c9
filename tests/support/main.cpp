// Several test files share a program. `program --file=learner/save,learner/fit`
// runs only the tests of tests/learner/checkpoint/save_test.cpp and
// fit_test.cpp; without it, all tests run.

#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace {

std::string filter_of(const std::string& file) {
  const std::string end = "/tests/" + file + "_test.cpp";
  std::string filter;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const auto& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const auto& test = *suite.GetTestInfo(t);
      // File paths are relative to the project's folder or absolute.
      if (("/" + std::string(test.file())).ends_with(end)) {
        filter += (filter.empty() ? "" : ":") +
                  (suite.name() + std::string(".")) + test.name();
      }
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFile = "--file=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kFile)) {
    std::string filter, file;
    std::istringstream files(argv[1] + kFile.size());
    while (std::getline(files, file, ',')) {
      const std::string more = filter_of(file);
      if (more.empty()) {
        std::fprintf(
            stderr,
            "%s has no test of %s_test.cpp.\n",
            argv[0],
            file.c_str());
        return 1;
      }
      filter += (filter.empty() ? "" : ":") + more;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  if (RUN_ALL_TESTS() != 0) return 1;
  const auto& all = *testing::UnitTest::GetInstance();
  if (all.test_to_run_count() == 0) {
    std::fprintf(
        stderr,
        "%s: no test has a name that was asked for.\n",
        argv[0]);
    return 1;
  }
  // CTest's SKIP_RETURN_CODE. A file with only one skipped test has passed.
  const bool has_run = all.successful_test_count() > 0;
  return all.skipped_test_count() > 0 && !has_run ? 77 : 0;
}
