#include "tern/vision/datasets/box_json.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::box_json_test {
namespace {

/// Returns an image of 40 x 30 pixels with one object whose fields are `box`.
std::string with_box(const std::string& box) {
  return R"({"width":40,"height":30,"boxes":[{)" + box + "}]}";
}

void expect_fault(
    const std::string& text,
    std::initializer_list<std::string_view> words) {
  expect_error<DataError>([&] { read_box_json(text, "a.tar, x"); }, words);
  expect_error<DataError>(
      [&] { read_box_json(text, "a.tar, x"); },
      {"a.tar, x", "Correct "});
}

TEST(BoxJson, WritesTheFormatDocumentedInTheHeader) {
  const ImageBoxes objects(
      {{10, 20.5, 30, 40, "car", true, 12.5}, {0, 0, 1, 2, "a \"b\""}},
      ImageSize{480, 640});
  EXPECT_EQ(
      to_box_json(objects),
      R"({"width":640,"height":480,"boxes":[)"
      R"({"bbox":[10,20.5,30,40],"label":"car","crowd":true,"area":12.5},)"
      R"({"bbox":[0,0,1,2],"label":"a \"b\""}]})");
  EXPECT_EQ(to_box_json({}), R"({"boxes":[]})");
  EXPECT_EQ(
      to_box_json({{}, {}, AnnotatedPixels::stored}),
      R"({"pixels":"stored","boxes":[]})");
}

TEST(BoxJson, ReadsBackTheSameNumbers) {
  const double third = 1.0 / 3;
  const ImageBoxes objects(
      {{third, 0.1, 7 * third, 29.999999999999996, "caf\u00e9", false, third},
       {-0.5, 0, 40.5, 30, "car", true}},
      ImageSize{30, 40});
  const ImageBoxes read = read_box_json(to_box_json(objects), "a");
  EXPECT_EQ(read.boxes, objects.boxes);
  EXPECT_EQ(read.image, objects.image);
  EXPECT_EQ(read_box_json(R"( {"boxes": [] } )", "a").image, ImageSize());
  for (const auto pixels :
       {AnnotatedPixels::unknown,
        AnnotatedPixels::upright,
        AnnotatedPixels::stored}) {
    EXPECT_EQ(read_box_json(to_box_json({{}, {}, pixels}), "a").pixels, pixels);
  }
  expect_fault(
      R"({"pixels":"both","boxes":[]})",
      {"'both'", "expected upright or stored"});
}

TEST(BoxJson, RejectsABoxOutsideTheImageUnlessItIsClipped) {
  const std::string outside = with_box(R"("bbox":[1,2,41.5,9],"label":"cow")");
  expect_fault(
      outside,
      {"boxes[0] of class 'cow' is [1, 2, 41.5, 9]",
       "reaches beyond the image of 40 x 30 pixels",
       "create the shards again"});
  EXPECT_EQ(read_box_json(outside, "a", /*clip=*/true).boxes[0].x2, 41.5);
  expect_error<DataError>(
      [&] {
        read_box_json(
            with_box(R"("bbox":[1,2,1,9],"label":"cow")"),
            "a",
            /*clip=*/true);
      },
      {"[1, 2, 1, 9]", "has no width"});
}

TEST(BoxJson, NamesTheBoxAndItsValue) {
  expect_fault(
      with_box(R"("bbox":[1,9,4,9],"label":"cow")"),
      {"[1, 9, 4, 9]", "has no height", "y1 below y2"});
  expect_fault(
      with_box(R"("bbox":[1,2,null,9],"label":"cow")"),
      {"is NaN or infinite"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,9],"label":"cow","area":-2)"),
      {"area -2", "has an area of -2"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,9],"label":"")"),
      {"boxes[0]", "class without a name"});
}

TEST(BoxJson, NamesTheFieldAndItsValue) {
  expect_fault(
      R"({"width":"wide","height":3,"boxes":[]})",
      {"byte 9", "(in 'width')", R"(expected a whole number, not '"wide"')"});
  expect_fault(
      R"({"width":40,"height":-3,"boxes":[]})",
      {"it is -3; expected a number of pixels"});
  expect_fault(R"({"width":40,"boxes":[]})", {"no field height"});
  expect_fault(R"({"width":40,"height":30})", {"no field boxes"});
  expect_fault(
      R"({"width":40,"height":30,"depth":3,"boxes":[]})",
      {"the field 'depth' is unknown", "width, height, pixels or boxes"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,9],"label":"cow","score":1)"),
      {"the field 'score' is unknown", "bbox, label, crowd or area"});
  expect_fault(with_box(R"("bbox":[1,2,3,9])"), {"a box has no label"});
  expect_fault(with_box(R"("label":"cow")"), {"a box has no bbox"});
  expect_fault(
      with_box(R"("bbox":[1,2,3],"label":"cow")"),
      {"a bbox has 3 numbers; expected four"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,4,5],"label":"cow")"),
      {"a bbox has 5 numbers"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,"4"],"label":"cow")"),
      {"expected a number", R"(not '"4"')"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,4],"label":7)"),
      {"expected a quoted string, not '7'"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,4],"label":"cow","crowd":1)"),
      {"expected true or false, not '1'"});
  expect_fault(
      with_box(R"("bbox":[1,2,3,4],"bbox":[1,2,3,4],"label":"cow")"),
      {"'bbox' twice"});
  expect_fault(R"({"boxes":[]} x)", {"expected the end"});
  expect_fault("", {"expected '{'"});
  expect_fault("[]", {"expected '{'"});
}

}  // namespace
}  // namespace tern::box_json_test
