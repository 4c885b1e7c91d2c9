#include "tern/learner/plot.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tern::plot_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

TEST(Plot, DrawsALineForEachCurveWithLabelsAndRoundTicks) {
  const std::string svg = to_svg(
      {"Losses",
       "batches",
       "loss",
       {{"train", {0, 10, 20}, {1, 0.5, 0.25}}, {"valid", {20}, {0.3}}}});
  EXPECT_EQ(count(svg, "<path"), 2u);
  for (const char* text :
       {"Losses", "batches", ">loss<", "train", "valid", ">0.4<", ">20<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text << " in " << svg;
  }
}

TEST(Plot, BreaksALineWhereAValueIsNotFinite) {
  const std::string svg =
      to_svg({"", "", "", {{"a", {0, 1, 2, 3, 4}, {1, 2, NAN, 2, INFINITY}}}});
  EXPECT_EQ(count(svg, "<path"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, PutsPowersOfTenAtEqualDistances) {
  const std::string svg = to_svg(
      {.title = "Loss",
       .x_label = "rate",
       .y_label = "loss",
       .curves = {{"loss", {0, 1e-4, 1e-2, 1}, {9, 1, 2, 3}}},
       .log_x = true});
  for (const char* tick : {"1e-04", "1e-02", "1e+00"}) {
    EXPECT_NE(svg.find(tick), std::string::npos) << tick;
  }
  // From 76 to 696; the point at 0 has no place.
  EXPECT_NE(svg.find("M76.0"), std::string::npos);
  EXPECT_NE(svg.find("L386.0"), std::string::npos);
  EXPECT_NE(svg.find("L696.0"), std::string::npos);
}

TEST(Plot, TakesNothingAndConstantsAndEscapesText) {
  EXPECT_NE(to_svg({}).find("</svg>"), std::string::npos);
  const std::string svg =
      to_svg({"a < b & c", "", "", {{"x", {1, 1}, {5, 5}}}});
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace tern::plot_test
