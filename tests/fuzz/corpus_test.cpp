#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/fuzz/targets.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::corpus_test {
namespace {

namespace fs = std::filesystem;

// The target aborts if a parser breaks its invariants.
TEST(Corpus, InputsFoundByFuzzingStayHandled) {
  std::set<std::string> names;
  for (const fuzz::Target& target : fuzz::targets()) {
    names.emplace(target.name);
    int files = 0;
    for (const auto& entry :
         fs::directory_iterator(in_tests_folder("fuzz/corpus") / target.name)) {
      SCOPED_TRACE(entry.path());
      target.run(read_file(entry.path()));
      ++files;
    }
    EXPECT_GT(files, 0) << target.name;
  }
  for (const auto& entry :
       fs::directory_iterator(in_tests_folder("fuzz/corpus"))) {
    EXPECT_TRUE(names.count(entry.path().filename())) << entry.path();
  }
}

}  // namespace
}  // namespace tern::corpus_test
