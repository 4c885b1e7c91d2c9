#include "tern/data/support/mentions.h"

#include <gtest/gtest.h>

namespace tern::mentions_test {
namespace {

TEST(Mentions, FindsWholeWords) {
  EXPECT_TRUE(mentions("sample 4", "sample 4"));
  EXPECT_TRUE(mentions("inputs[0] of sample 4 is empty", "sample 4"));
  EXPECT_TRUE(mentions("sample 42, then sample 4.", "sample 4"));
  EXPECT_TRUE(mentions("[SaveModel] no space", "[SaveModel]"));
  EXPECT_TRUE(mentions("cannot read /a/b.png: gone", "/a/b.png"));
}

TEST(Mentions, FindsNoPartOfALongerWord) {
  EXPECT_FALSE(mentions("sample 42", "sample 4"));
  EXPECT_FALSE(mentions("subsample 4", "sample 4"));
  EXPECT_FALSE(mentions("sample 4b and sample 4_", "sample 4"));
  EXPECT_FALSE(mentions("", "sample 4"));
  EXPECT_FALSE(mentions("sample 4", ""));
}

}  // namespace
}  // namespace tern::mentions_test
