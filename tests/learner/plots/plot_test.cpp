#include "tern/learner/plots/plot.h"

#include <cmath>
#include <sstream>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/plots/svg.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

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

// The x coordinate of the text with this label in the SVG.
double x_of(const std::string& svg, const std::string& label) {
  const size_t end = svg.find(">" + label + "<");
  const size_t begin = svg.rfind("<text x=\"", end);
  return end == std::string::npos || begin == std::string::npos
             ? NAN
             : std::stod(svg.substr(begin + 9));
}

TEST(Plot, DrawsALinePerCurveWithLabelsAndRoundTicks) {
  const std::string svg = to_svg(
      {"Losses",
       "batches",
       "loss",
       {{"train", {0, 10, 20}, {1, 0.5, 0.25}}, {"valid", {20}, {0.3}}}});
  // Two curves, each with a key in the legend.
  EXPECT_EQ(count(svg, "class=\"curve\""), 4u);
  for (const char* text :
       {"Losses", "batches", ">loss<", "train", "valid", ">0.4<", ">20<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text << " in " << svg;
  }
}

TEST(Plot, BreaksALineAtValuesThatAreNotFinite) {
  const std::string svg =
      to_svg({"", "", "", {{"a", {0, 1, 2, 3, 4}, {1, 2, NAN, 2, INFINITY}}}});
  EXPECT_EQ(count(svg, "class=\"curve\""), 3u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, PlacesPowersOfTenAtEqualDistancesOnALogarithmicAxis) {
  const std::string svg = to_svg(
      {.title = "Loss",
       .x_label = "rate",
       .y_label = "loss",
       .curves = {{"loss", {0, 1e-4, 1e-2, 1}, {9, 1, 2, 3}}},
       .log_x = true});
  const double left = x_of(svg, "1e-04"), right = x_of(svg, "1e+00");
  EXPECT_NEAR(x_of(svg, "1e-02"), (left + right) / 2, 0.1);
  // The point at 0 is not drawn.
  EXPECT_NE(svg.find(fmt::format("d=\"M{:.1f} ", left)), std::string::npos);
  EXPECT_NE(svg.find(fmt::format("L{:.1f} ", right)), std::string::npos);
}

TEST(Plot, AcceptsNoCurvesAndConstantsAndEscapesText) {
  EXPECT_NE(to_svg({}).find("</svg>"), std::string::npos);
  const std::string svg =
      to_svg({"a < b & c", "", "", {{"x", {1, 1}, {5, 5}}}});
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Plot, SupportsALogarithmicYAxis) {
  Plot plot;
  plot.curves = {{"", {0, 1, 2, 3}, {1e-3, 0, -1, 1e3}}};
  plot.log_y = true;
  const std::string svg = to_svg(plot);
  EXPECT_NE(svg.find("1e-03"), std::string::npos);
  EXPECT_NE(svg.find("1e+03"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"curve\""), 2u);  // broken at 0 and -1
}

TEST(Plot, KeepsTheExtremesOfALongCurveWithFewPoints) {
  Curve curve{"", {}, {}};
  for (int i = 0; i < 1'000'000; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 123'456 ? 10 : std::sin(i * 1e-5));
  }
  Plot plot;
  plot.curves = {curve};
  const std::string svg = to_svg(plot);
  EXPECT_LT(svg.size(), 100'000u);
  EXPECT_NE(svg.find(" 44.0"), std::string::npos);  // the peak, at the top
}

TEST(Plot, HandlesTheLargestNumbers) {
  for (const double big : {1e300, 1.7e308}) {
    const std::string svg = to_svg({"", "", "", {{"", {0, 1}, {-big, big}}}});
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
  EXPECT_NE(
      to_svg({"", "", "", {{"", {0, 1}, {1e-300, 1e-300}}}}).find("</svg>"),
      std::string::npos);
}

TEST(Plot, TakesItsColorsFromThePage) {
  const Plot plot{"", "", "", {{"a", {0, 1}, {0, 1}}}};
  const std::string svg = to_svg(plot, SvgUse::page);
  EXPECT_NE(svg.find("currentColor"), std::string::npos);
  EXPECT_NE(svg.find("var(--series-0"), std::string::npos);
  EXPECT_EQ(svg.find("white"), std::string::npos);
}

TEST(Plot, LeavesRoomBetweenLabelsOfAnyWidthAndTheAxisTitle) {
  constexpr double kTitleEnds = 22;
  for (const double value : {1., 250'000., 1e-7}) {
    Plot plot{"", "", "loss", {{"", {0, 1}, {0, value}}}};
    const std::string svg = to_svg(plot);
    const std::string label = value == 1         ? "0.8"
                              : value == 250'000 ? "250000"
                                                 : "1e-07";
    EXPECT_GT(x_of(svg, label) - text_width(label, 13), kTitleEnds + 8)
        << label;
  }
}

TEST(Plot, LabelsEpochsWithWholeNumbersOnly) {
  Plot plot{.curves = {{"", {0, 1, 2}, {5, 6, 7}}}};
  EXPECT_NE(to_svg(plot).find(">0.5<"), std::string::npos);
  plot.whole_x = true;
  EXPECT_EQ(to_svg(plot).find(">0.5<"), std::string::npos);
  plot.curves[0].x = {0};  // only the first epoch
  EXPECT_EQ(to_svg(plot).find(">-1<"), std::string::npos);
}

TEST(Plot, DrawsMarkersOnALineAndMarksAcrossThePlot) {
  Plot plot{.curves = {{"a", {0, 1, 2}, {5, 6, 7}}}};
  EXPECT_EQ(count(to_svg(plot), "h0"), 0u);
  plot.curves[0].markers = true;
  EXPECT_EQ(count(to_svg(plot), "h0"), 3u);
  plot.marks = {1, 99};  // 99 is outside the axis
  plot.marks_label = "a fit begins";
  const std::string svg = to_svg(plot);
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2u);  // including one in the legend
  EXPECT_EQ(count(svg, "a fit begins"), 1u);
}

uint32_t big_endian(const std::vector<uint8_t>& bytes, size_t at) {
  return static_cast<uint32_t>(bytes[at]) << 24 | bytes[at + 1] << 16 |
         bytes[at + 2] << 8 | bytes[at + 3];
}

TEST(Plot, IsAPngOfTheSameSizeWithText) {
  const Plot plot{"Losses", "batches", "loss", {{"", {0, 1}, {0, NAN}}}};
  const auto png = to_png(plot, 2);
  ASSERT_GT(png.size(), 33u);
  EXPECT_EQ(big_endian(png, 16), 1440u);
  EXPECT_EQ(big_endian(png, 20), 880u);
  Plot without = plot;
  without.title = "";
  EXPECT_NE(to_png(without, 2), png);
  expect_error<c10::ValueError>([&] { to_png(plot, 0); }, {"0.25 to 8"});
}

TEST(Plot, DrawsNonAsciiLettersInAPng) {
  const auto png_of = [](const char* title) {
    return to_png({.title = title});
  };
  EXPECT_NE(png_of("h\u00F6her"), png_of("h\u00FCher"));
  EXPECT_NE(png_of("\u03B1"), png_of("\u03B2"));
}

TEST(Plot, IsSavedInTheFormatOfTheFileName) {
  const TempFolder temp;
  save_plot(temp / "a.svg", {});
  save_plot(temp / "a.png", {});
  EXPECT_EQ(read_file(temp / "a.svg").at(0), '<');
  EXPECT_EQ(read_file(temp / "a.png").at(1), 'P');
  expect_error<c10::ValueError>(
      [&] { save_plot(temp / "a.pdf", {}); },
      {"a.pdf", ".svg or .png"});
  expect_error<IoError>(
      [&] { save_plot(temp / "no" / "a.png", {}); },
      {"a.png", "No such file"});
}

// Losses of 100 batches, one of which diverged.
Plot with_an_outlier() {
  Curve curve{"loss", {}, {}};
  for (int i = 0; i < 100; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 40 ? 1e4 : 1 - 0.005 * i);
  }
  Plot plot{.title = "Losses", .curves = {curve}};
  plot.clip_outliers = true;
  return plot;
}

TEST(Plot, IsNotFlattenedByOneOutlierAndReportsHowManyAreOutside) {
  Plot plot = with_an_outlier();
  const std::string svg = to_svg(plot);
  EXPECT_NE(
      svg.find("1 of 100 points is outside the axis, up to 1e+04"),
      std::string::npos);
  EXPECT_NE(svg.find(">0.6<"), std::string::npos);
  EXPECT_EQ(svg.find(">10000<"), std::string::npos);
  // The line goes to the edge and back: two parts, and a key in the legend.
  EXPECT_EQ(count(svg, "class=\"curve\""), 3u);
  plot.clip_outliers = false;
  EXPECT_NE(to_svg(plot).find(">10000<"), std::string::npos);
  EXPECT_EQ(to_svg(plot).find("outside"), std::string::npos);
}

TEST(Plot, ShowsTheStartOfALongCurve) {
  Plot plot = with_an_outlier();
  Curve& curve = plot.curves[0];
  curve.x.clear();
  curve.y.clear();
  for (int i = 0; i < 2000; ++i) {  // falls within the first percent
    curve.x.push_back(i);
    curve.y.push_back(0.1 + 20 * std::exp(-0.3 * i));
  }
  EXPECT_EQ(to_svg(plot).find("outside"), std::string::npos);
  curve.y[1000] = 1e4;
  EXPECT_NE(
      to_svg(plot).find("1 of 2000 points is outside"),
      std::string::npos);
  EXPECT_NE(to_svg(plot).find(">20<"), std::string::npos);
}

TEST(Plot, DrawsNothingOutsideItsAxes) {
  const std::string svg = to_svg(with_an_outlier());
  const double axis = 440 - 56;
  for (size_t at = svg.find("class=\"curve\" d=\"M"); at != std::string::npos;
       at = svg.find("class=\"curve\" d=\"M", at + 1)) {
    const size_t begin = at + 18;
    std::string d = svg.substr(begin, svg.find('"', begin) - begin);
    for (char& c : d) {
      if (c == 'L' || c == 'h') c = ' ';
    }
    std::istringstream numbers(d);
    for (double x = 0, y = 0; numbers >> x >> y;) {
      EXPECT_GE(y, 40);
      EXPECT_LE(y, axis + 0.1);
    }
  }
}

TEST(Plot, ShowsAllPointsIfNoneIsAnOutlier) {
  Plot plot = with_an_outlier();
  plot.log_y = true;  // outliers do not flatten it
  EXPECT_EQ(to_svg(plot).find("outside"), std::string::npos);
  plot.log_y = false;
  plot.curves[0].y[40] = 4;  // a spike that leaves the other values readable
  EXPECT_EQ(to_svg(plot).find("outside"), std::string::npos);
  plot = with_an_outlier();  // with few points, each may be relevant
  plot.curves[0].x.resize(19);
  plot.curves[0].y.resize(19);
  plot.curves[0].y[3] = 1e4;
  EXPECT_EQ(to_svg(plot).find("outside"), std::string::npos);
  plot = with_an_outlier();
  plot.curves.push_back({"valid", {50, 99}, {5e3, 1e4}});  // has diverged
  EXPECT_EQ(to_svg(plot).find("outside"), std::string::npos);
  for (double& y : plot.curves[0].y) y = NAN;
  EXPECT_NE(to_svg(plot).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace tern::plot_test
