#include "tern/examples/notebook.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::examples::notebook_test {
namespace {

TEST(WritePage, JoinsTheLinesOfATableBrokenAt80Columns) {
  const TempFolder temp;
  std::ofstream(temp / "program.cpp") << "// A program.\nint main() {}\n";
  std::ofstream(temp / "printed.txt")
      << "epoch  train_loss  valid_loss  accuracy  f1\n"
         "       recall    time\n"
         "0      0.100000    0.200000    0.300000  0.400000\n"
         "       0.500000  00:01\n"
         "1      0.110000    0.210000    0.310000  0.410000\n"
         "       0.510000  00:02\n"
         "  done, indented\n";
  ::setenv("TERN_PAGES", (temp / "pages").c_str(), 1);
  write_page(
      "A program",
      temp / "program.cpp",
      temp / "printed.txt",
      {},
      "program --epochs 2");
  ::unsetenv("TERN_PAGES");
  const auto bytes = read_file(temp / "pages" / "program.html");
  const std::string html(bytes.begin(), bytes.end());
  for (const char* part :
       {">recall</th>",
        ">time</th>",
        ">0.500000</td>",
        ">00:02</td>",
        "program --epochs 2",
        "  done, indented"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(html.find("<pre>       0.5"), std::string::npos);
}

}  // namespace
}  // namespace tern::examples::notebook_test
