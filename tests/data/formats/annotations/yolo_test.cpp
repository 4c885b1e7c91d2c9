#include "tern/data/formats/annotations/yolo.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::yolo_test {
namespace {

std::vector<YoloObject> parse(const std::string& text, bool polygons = false) {
  return parse_yolo(as_bytes(text), "a.txt", polygons);
}

std::string fault(const std::string& text, bool polygons = false) {
  return error_of<DataError>([&] { parse(text, polygons); });
}

std::vector<std::string> names(const std::string& text) {
  return parse_names(as_bytes(text), "classes.txt", "class");
}

TEST(Yolo, ReadsALineForEachObject) {
  const auto objects =
      parse("\n45 0.479492 0.688771 0.955609 0.5955\r\n\t0.000 1 0 1e-1 .5");
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].label, 45);
  EXPECT_EQ(objects[0].cx, 0.479492);
  EXPECT_EQ(objects[0].cy, 0.688771);
  EXPECT_EQ(objects[0].width, 0.955609);
  EXPECT_EQ(objects[0].height, 0.5955);
  EXPECT_EQ(objects[0].line, 2u);
  EXPECT_EQ(objects[1].label, 0);
  EXPECT_EQ(objects[1].width, 0.1);
  EXPECT_EQ(objects[1].height, 0.5);
  EXPECT_EQ(objects[1].line, 3u);
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse("\n \n").empty());
}

TEST(Yolo, ConvertsAPolygonToItsBoundingBoxOnRequest) {
  const auto objects = parse("3 0.5 0.25 0.75 0.5 0.25 1\n", true);
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_EQ(objects[0].label, 3);
  EXPECT_EQ(objects[0].cx, 0.5);
  EXPECT_EQ(objects[0].cy, 0.625);
  EXPECT_EQ(objects[0].width, 0.5);
  EXPECT_EQ(objects[0].height, 0.75);
  EXPECT_TRUE(std::isnan(parse("3 0 0 1 nan 1 1", true)[0].cx));
}

TEST(Yolo, NamesTheLineThatIsWrong) {
  EXPECT_EQ(
      fault("0 1 1 1 1\n\n0 1 2 3"),
      "a.txt:3: the line has 4 numbers; expected five: class, center and size "
      "of the box. Correct this line of the file.");
  EXPECT_EQ(
      fault("0 0.1 0.1 0.2 0.2 0.3 0.3"),
      "a.txt:1: the line has 7 numbers; expected five: class, center and size "
      "of the box, or for a segmentation dataset the option polygons. Correct "
      "this line of the file.");
  EXPECT_EQ(
      fault("0 0.1 0.1 0.2 0.2 0.9", true),
      "a.txt:1: the line has 6 numbers; expected five: class, center and size "
      "of the box; a sixth is the score of a prediction. Correct this line of "
      "the file.");
  EXPECT_EQ(
      fault("0 0.1 0,1 0.2 0.2"),
      "a.txt:1: '0,1' is not a number. Correct this line of the file.");
  EXPECT_EQ(
      fault("0 0.1 1e999 0.2 0.2"),
      "a.txt:1: '1e999' is not a number. Correct this line of the file.");
  EXPECT_EQ(
      fault("0.5 0.1 1 0.2 0.2"),
      "a.txt:1: the class is '0.5'; expected a whole number. Correct this line "
      "of the file.");
  EXPECT_EQ(
      fault("nan 0.1 1 0.2 0.2"),
      "a.txt:1: the class is 'nan'; expected a whole number. Correct this line "
      "of the file.");
  EXPECT_EQ(
      fault(std::string("0 \0 1 1 1", 9)),
      "a.txt:1: '\\x00' is not a number. Correct this line of the file.");
}

TEST(Yolo, ReadsNamesOnLines) {
  EXPECT_EQ(
      names("\xef\xbb\xbf"
            "cat\r\n fire hydrant \r\n\n\n"),
      (std::vector<std::string>{"cat", "fire hydrant"}));
  const auto fault = [](const std::string& text) {
    return error_of<DataError>([&] { names(text); });
  };
  EXPECT_EQ(
      fault("cat\n\ndog"),
      "classes.txt:2: the line is empty; expected the name of a class. Correct "
      "this line of the file.");
  EXPECT_EQ(
      fault("cat\ndog\ncat"),
      "classes.txt:3: the class 'cat' is already in line 1. Correct this line "
      "of the file.");
  EXPECT_EQ(
      fault("cat\n\xff"),
      "classes.txt:2: '\\xff' is not UTF-8 text. Correct this line of the "
      "file.");
  EXPECT_EQ(
      fault("\n"),
      "classes.txt: is empty; expected a class on each line.");
}

}  // namespace
}  // namespace tern::yolo_test
