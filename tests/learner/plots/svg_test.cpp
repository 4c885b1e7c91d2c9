#include "tern/learner/plots/svg.h"

#include <gtest/gtest.h>

namespace tern::svg_test {
namespace {

using Lines = std::vector<std::string>;

TEST(WrapText, BreaksAfterSpacesAndPunctuationWithinTheWidth) {
  const double width = text_width("photographs/", 10);
  EXPECT_EQ(
      wrap_text("photographs/jackets/front view", width, 10, 9),
      (Lines{"photographs/", "jackets/", "front view"}));
  EXPECT_EQ(wrap_text("short", width, 10, 1), Lines{"short"});
  EXPECT_EQ(wrap_text("", width, 10, 3), Lines{""});
}

TEST(WrapText, BreaksALongWordBetweenCharacters) {
  const double two = text_width("日本", 12);
  EXPECT_EQ(wrap_text("日本の猫", two, 12, 2), (Lines{"日本", "の猫"}));
  EXPECT_EQ(wrap_text("ab", 0, 12, 9).size(), 2u);  // no room at all
}

TEST(WrapText, OmitsTheMiddleOfTextThatIsTooLong) {
  const std::string line =
      wrap_text("Überaus_langer_Name_einer_Klasse", 100, 12, 1).front();
  EXPECT_LE(text_width(line, 12), 100);
  EXPECT_TRUE(line.starts_with("Übera")) << line;
  EXPECT_TRUE(line.ends_with("lasse")) << line;
  EXPECT_NE(line.find("…"), std::string::npos);
  const Lines two = wrap_text("one two three four five six", 60, 12, 2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_TRUE(two[1].ends_with("six")) << two[1];
}

TEST(TextWidth, CountsCharactersAndNotBytes) {
  EXPECT_NEAR(text_width("ä", 10), text_width("a", 10), 1);
  EXPECT_EQ(text_width("日本", 10), 20);
  EXPECT_EQ(text_width("\xff\xff", 10), 2 * text_width("\xff", 10));
  EXPECT_LT(text_width("ill", 10), text_width("WWW", 10));
}

TEST(SvgText, KeepsNonAsciiLettersAndEscapesMarkup) {
  const std::string svg = svg_text({"Grün Ψάρι 猫 قطة <b>"}, "red");
  EXPECT_NE(svg.find(">Grün Ψάρι 猫 قطة &lt;b&gt;<"), std::string::npos);
  EXPECT_EQ(svg_text({""}, "red"), "");
}

TEST(RenderSvg, ReturnsRowsOfRgbPixels) {
  const std::vector<uint8_t> pixels = render_svg(
      svg_document(
          2,
          1,
          "",
          /*is_on_white=*/true,
          "<rect width=\"1\" height=\"1\" fill=\"#010203\"/>"),
      2,
      1);
  EXPECT_EQ(pixels, (std::vector<uint8_t>{1, 2, 3, 255, 255, 255}));
}

}  // namespace
}  // namespace tern::svg_test
