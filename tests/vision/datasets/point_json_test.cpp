#include "tern/vision/datasets/point_json.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::point_json_test {
namespace {

TEST(PointJson, WritesTheFormatDocumentedInTheHeader) {
  EXPECT_EQ(
      to_point_json({{30.5, 40}, {.visible = false}, {12, 80.25}}),
      R"({"points":[[30.5,40],null,[12,80.25]]})");
  EXPECT_EQ(to_point_json({}), R"({"points":[]})");
  expect_error<c10::ValueError>(
      [] {
        to_point_json({{1, INFINITY}});
      },
      {"[to_point_json] a point is 1, inf"});
}

TEST(PointJson, ReadsBackTheSameNumbers) {
  const std::vector<Point> points = {
      {1.0 / 3, 29.999999999999996},
      {.visible = false},
      {-0.5, 1e9}};
  EXPECT_EQ(read_point_json(to_point_json(points), "a"), points);
  EXPECT_TRUE(read_point_json(R"( {"points": [ ] } )", "a").empty());
}

TEST(PointJson, NamesTheSampleOfAnInvalidText) {
  const auto expect_fault = [](const std::string& text, const char* words) {
    expect_error<DataError>(
        [&] { read_point_json(text, "a.tar, x"); },
        {"a.tar, x", words});
  };
  expect_fault("", "'{'");
  expect_fault("{}", "there is no field points");
  expect_fault(R"({"points":[1,2]})", "'['");
  expect_fault(R"({"points":[[1]]})", "a point has 1 numbers");
  expect_fault(R"({"points":[[1,2,3]]})", "a point has 3 numbers");
  expect_fault(R"({"points":[[1,null]]})", "expected a finite number");
  expect_fault(R"({"points":[[1,"2"]]})", "expected a number");
  expect_fault(R"({"points":[],"boxes":[]})", "'boxes' is unknown");
  expect_fault(R"({"points":[]} 1)", "expected the end");
}

}  // namespace
}  // namespace tern::point_json_test
