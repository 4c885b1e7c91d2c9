#include "tern/data/formats/text.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tern::text_test {
namespace {

TEST(Text, TrimsWhitespaceAtBothEnds) {
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Text, ParsesANumberThatIsTheWholeText) {
  EXPECT_EQ(parse_number(" 12 "), 12);
  EXPECT_EQ(parse_number("-0.5e2"), -50);
  EXPECT_EQ(parse_number("+3"), 3);
  EXPECT_TRUE(std::isnan(parse_number("nan").value()));
  EXPECT_TRUE(std::isinf(parse_number("-inf").value()));
}

TEST(Text, ParsesNoNumberFromOtherText) {
  for (const char* text :
       {"", " ", "1 2", "12px", "+-1", "--1", "0x10", "1e999", "1,5"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tern::text_test
