#include "tern/data/formats/sha256sums.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::sha256sums_test {
namespace {

Sha256Sums parse(const std::string& text) {
  return parse_sha256sums(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()},
      "SHA256SUMS");
}

const std::string kSum(64, 'a');

TEST(Sha256Sums, ReadsWhatItWritesAndWhatSha256sumDoes) {
  const Sha256Sums sums = {{"b.tar", kSum}, {"a b.tar", std::string(64, '0')}};
  EXPECT_EQ(parse(to_text(sums)), sums);
  EXPECT_EQ(parse(kSum + " *binary.tar").at("binary.tar"), kSum);
  EXPECT_TRUE(parse("").empty());
}

TEST(Sha256Sums, ReadsPathsWithEscapesWhereTheyMayBe) {
  const Sha256Sums sums = {{"a/b\\c\nd.png", kSum}, {"e.png", kSum}};
  const std::string text = to_text(sums);
  EXPECT_EQ(text, "\\" + kSum + "  a/b\\\\c\\nd.png\n" + kSum + "  e.png\n");
  const auto parse_paths = [](const std::string& list) {
    return parse_sha256sums(
        {reinterpret_cast<const uint8_t*>(list.data()), list.size()},
        "LIST",
        SumNames::paths);
  };
  EXPECT_EQ(parse_paths(text), sums);
  expect_error<DataError>([&] { parse(text); }, {"line 1 "});
  expect_error<DataError>(
      [&] { parse_paths(text.substr(0, text.size() - 1)); },
      {"line 2 "});
}

TEST(Sha256Sums, NamesTheLineThatIsNone) {
  const std::string good = kSum + "  a.tar\n";
  for (const std::string& bad :
       {std::string("x"),
        kSum,
        kSum + "  ",
        std::string(64, 'A') + "  b.tar",
        kSum + "  ../b.tar",
        kSum + "  c/b.tar",
        kSum + "\tb.tar",
        kSum + "  a.tar",
        std::string()}) {
    expect_error<DataError>(
        [&] { parse(good + bad + "\n" + good); },
        {"SHA256SUMS: line 2 "});
  }
}

}  // namespace
}  // namespace tern::sha256sums_test
