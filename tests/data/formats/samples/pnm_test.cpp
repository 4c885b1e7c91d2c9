#include "tern/data/formats/samples/pnm.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"

namespace tern::pnm_test {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

PnmFile parse(const std::string& text) {
  return parse_pnm(bytes_of(text), "a.ppm");
}

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(Pnm, IsRecognizedByItsFirstBytes) {
  for (const char* text : {"P5 1", "P6\n1", "P5#", "P6\t"}) {
    EXPECT_TRUE(is_pnm(bytes_of(text))) << text;
  }
  for (const char* text : {"", "P5", "P4 1", "P55 1", "p6 1", "\x89PNG"}) {
    EXPECT_FALSE(is_pnm(bytes_of(text))) << text;
  }
}

TEST(Pnm, ReadsSizeAndPixels) {
  const std::string text = "P6 2 1 255\nabcdef";
  const PnmFile colors = parse(text);
  EXPECT_EQ(colors.width, 2);
  EXPECT_EQ(colors.height, 1);
  EXPECT_EQ(colors.channels, 3);
  EXPECT_EQ(colors.bytes_per_value, 1);
  ASSERT_GE(colors.pixels.size(), 6U);
  EXPECT_EQ(colors.pixels[0], 'a');
  EXPECT_EQ(colors.pixels[5], 'f');

  const std::string deep = std::string("P5 1 2 65535 ") + "\x01\x02\x03\x04";
  const PnmFile gray = parse(deep);
  EXPECT_EQ(gray.channels, 1);
  EXPECT_EQ(gray.bytes_per_value, 2);
  EXPECT_EQ(gray.pixels[3], 4);
}

TEST(Pnm, AllowsCommentsAndAnyWhitespaceInItsHeader) {
  const std::string text = "P5# of a camera\n 2\t# wide\r\n1\n#\n255\r\n\n";
  const PnmFile file = parse(text);
  EXPECT_EQ(file.width, 2);
  EXPECT_EQ(file.height, 1);
  // One whitespace character ends the header; a second one is a pixel.
  EXPECT_EQ(file.pixels[0], '\n');
}

TEST(Pnm, NamesTheErrorAndTheFile) {
  for (const auto& [text, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"P3 1 1 255\n1", "is not a binary PGM or PPM"},
           {"P5 2", "ends within its header"},
           {"P5 2 2 # 255", "ends within its header"},
           {"P5 0 1 255\n1", "expected a number in its header, not '0 1 255"},
           {"P5 -1 1 255\n1", "is a damaged PNM file"},
           {"P5 9999999999 1 255\n1", "is a damaged PNM file"},
           {"P5 1 1 15\n1", "maxval 15"},
           {"P5 1 1 255", "its header is not followed by whitespace"},
           {"P6 2 1 255\nabcde", "truncated"},
           {"P6 99999 99999 65535\nabcde", "truncated"}}) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_NE(error.find("a.ppm"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace tern::pnm_test
