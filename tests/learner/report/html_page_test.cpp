#include "tern/learner/report/html_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/learner/plots/plot.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::html_page_test {
namespace {

TEST(HtmlText, EscapesMarkup) {
  EXPECT_EQ(
      html_escape("<a href=\"x\" id='y'>&amp;"),
      "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;");
  EXPECT_EQ(html_escape("ä € 日 😀\n\t"), "ä € 日 😀\n\t");
}

TEST(HtmlText, ReplacesInvalidCharacters) {
  EXPECT_EQ(html_escape(std::string("a\0\x1b\x7f", 4)), "a\ufffd\ufffd\ufffd");
  EXPECT_EQ(html_escape("\xff\xc3("), "\ufffd\ufffd(");
}

TEST(HtmlPage, EscapesAllText) {
  const std::string evil = "<script>alert('1')</script>";
  HtmlPage page(evil);
  page.heading(evil);
  page.subheading(evil);
  page.paragraph(evil);
  page.preformatted(evil);
  page.code(evil);
  page.table({evil}, {{evil}});
  page.properties({{evil, evil}});
  page.matrix({evil}, {evil}, {{1}});
  page.plot({evil, evil, evil, {{evil, {0, 1}, {0, 1}}}});
  page.pictures({{{1, 2, 3}, evil}});
  page.heading("b");
  page.heading("c");  // three headings: with a table of contents
  const std::string html = page.to_string();
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("alert('"), std::string::npos);
  EXPECT_NE(html.find("<nav>"), std::string::npos);
}

TEST(HighlightCpp, MarksCommentsStringsNumbersKeywordsAndDirectives) {
  EXPECT_EQ(
      highlight_cpp("#include <a>\nreturn f(1'000, 2e-3f);  // <b>\n"),
      "<span class=\"p\">#include &lt;a&gt;</span>\n"
      "<span class=\"k\">return</span> f(<span class=\"n\">1&#39;000</span>, "
      "<span class=\"n\">2e-3f</span>);  "
      "<span class=\"c\">// &lt;b&gt;</span>\n");
  EXPECT_EQ(
      highlight_cpp("\"a\\\"b // c\" + returned"),
      "<span class=\"s\">&quot;a\\&quot;b // c&quot;</span> + returned");
  EXPECT_EQ(
      highlight_cpp("R\"x(\")x\"/*\n*/'\\''"),
      "<span class=\"s\">R&quot;x(&quot;)x&quot;</span>"
      "<span class=\"c\">/*\n*/</span>"
      "<span class=\"s\">&#39;\\&#39;&#39;</span>");
}

TEST(HighlightCpp, HandlesTruncatedCode) {
  for (const char* code :
       {"\"a", "'", "R\"", "R\"x(", "/*", "//", "1", "\"\\"}) {
    EXPECT_NE(highlight_cpp(code).find("</span>"), std::string::npos) << code;
  }
}

TEST(HtmlPage, WritesAllDigitsOfMatrixCounts) {
  HtmlPage page("a");
  page.matrix({"a"}, {"a", "b", "c"}, {{1'234'567, 0.123456, 0}});
  const std::string html = page.to_string();
  for (const char* cell : {">1234567<", ">0.1235<", ">0<"}) {
    EXPECT_NE(html.find(cell), std::string::npos) << cell;
  }
}

TEST(HtmlPage, LoadsNothingExternal) {
  HtmlPage page("a");
  page.plot({});
  const std::string html = page.to_string();
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  size_t links = 0;
  for (size_t at = 0; (at = html.find("://", at)) != std::string::npos; ++at) {
    ++links;
  }
  EXPECT_EQ(links, 1u);  // the SVG namespace
}

TEST(HtmlPage, AlignsNumericColumnsToTheRight) {
  HtmlPage page("a");
  page.table({"name", "loss"}, {{"x", "0.5"}, {"y", "nan"}});
  const std::string html = page.to_string();
  EXPECT_NE(html.find("<td class=\"number\">nan</td>"), std::string::npos);
  EXPECT_NE(html.find("<td>x</td>"), std::string::npos);
}

TEST(HtmlPage, ChecksTheShapeOfTables) {
  HtmlPage page("a");
  expect_error<c10::ValueError>(
      [&] {
        page.table({"a", "b"}, {{"1"}});
      },
      {"1 cells", "expected 2"});
  expect_error<c10::ValueError>(
      [&] {
        page.matrix({"a"}, {"a", "b"}, {{1}});
      },
      {"1 values", "expected 2"});
}

TEST(HtmlPage, AcceptsAnyValuesInAMatrix) {
  HtmlPage page("a");
  page.matrix({"a", "b"}, {"a", "b"}, {{NAN, INFINITY}, {0, -1}});
  page.matrix({}, {}, {});
  EXPECT_EQ(page.to_string().find("rgba(var(--shade),nan"), std::string::npos);
}

TEST(HtmlPage, IsWrittenCompletelyOrNotAtAll) {
  const TempFolder temp;
  HtmlPage("a").save(temp / "a.html");
  EXPECT_EQ(temp.entries(), 1);
  expect_error<IoError>(
      [&] { HtmlPage("a").save(temp / "no" / "a.html"); },
      {"No such file"});
}

TEST(Base64, MatchesTheStandard) {
  const auto encoded = [](std::string_view text) {
    return base64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(encoded(""), "");
  EXPECT_EQ(encoded("f"), "Zg==");
  EXPECT_EQ(encoded("fo"), "Zm8=");
  EXPECT_EQ(encoded("foo"), "Zm9v");
  EXPECT_EQ(encoded("foobar"), "Zm9vYmFy");
}

using Rgb = std::array<double, 3>;

Rgb rgb_of(const std::string& hex) {
  Rgb color{};
  for (size_t i = 0; i < 3; ++i) {
    color[i] = std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16);
  }
  return color;
}

// W3C's contrast ratio, 1 to 21.
double contrast(const Rgb& a, const Rgb& b) {
  const auto luminance = [](const Rgb& color) {
    constexpr Rgb kWeights = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      const double c = color[i] / 255;
      sum += kWeights[i] *
             (c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
    }
    return sum + 0.05;
  };
  const double one = luminance(a), other = luminance(b);
  return std::max(one, other) / std::min(one, other);
}

// The style sheet's variables after `begin`.
std::map<std::string, std::string> variables(
    const std::string& html,
    size_t begin) {
  std::map<std::string, std::string> found;
  const std::string text = html.substr(begin, html.find('}', begin) - begin);
  const std::regex variable("--([a-z0-9-]+): ([^;]+);");
  for (std::sregex_iterator at(text.begin(), text.end(), variable), end;
       at != end;
       ++at) {
    found[(*at)[1]] = (*at)[2];
  }
  return found;
}

TEST(HtmlPage, IsReadableInItsLightAndItsDarkTheme) {
  const std::string html = HtmlPage("").to_string();
  const size_t light = html.find(":root {");
  const size_t dark = html.find(":root {", light + 1);
  ASSERT_LT(html.find("prefers-color-scheme: dark"), dark);
  for (const size_t theme : {light, dark}) {
    const auto color = variables(html, theme);
    const Rgb back = rgb_of(color.at("back"));
    for (const char* text : {"text", "soft", "accent", "keyword", "string"}) {
      EXPECT_GE(contrast(rgb_of(color.at(text)), back), 4.5) << text;
    }
    for (int i = 0; i < 6; ++i) {  // lines
      const std::string name = "series-" + std::to_string(i);
      EXPECT_GE(contrast(rgb_of(color.at(name)), back), 3) << name;
    }
    // The opacity of the shade in a matrix's darkest cell.
    Rgb shade{};
    std::istringstream numbers(color.at("shade"));
    char comma = 0;
    numbers >> shade[0] >> comma >> shade[1] >> comma >> shade[2];
    for (size_t i = 0; i < 3; ++i) {
      shade[i] = 0.75 * shade[i] + 0.25 * back[i];
    }
    EXPECT_GE(contrast(rgb_of(color.at("text")), shade), 4.5);
  }
}

TEST(HtmlPage, ColorsPlotsOnlyThroughVariablesOfItsTheme) {
  Plot plot{"title", "x", "y", {{"a", {0, 1}, {0, 1}}}};
  for (int i = 0; i < 6; ++i) plot.curves.push_back(plot.curves[0]);
  plot.marks = {0.5};
  plot.marks_label = "mark";
  HtmlPage page("");
  page.plot(plot);
  const std::string html = page.to_string();
  const std::string svg = html.substr(html.find("<svg"));
  const std::regex paint("(?:stroke|fill)=\"([^\"]*)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), paint), end; at != end;
       ++at) {
    const std::string color = (*at)[1];
    const bool is_themed = color == "currentColor" || color == "none" ||
                           color.starts_with("var(--");
    EXPECT_TRUE(is_themed) << color;
    if (!color.starts_with("var(--")) continue;
    const std::string name = color.substr(4, color.find(',') - 4);
    const size_t first = html.find(name + ": #");
    ASSERT_NE(first, std::string::npos) << name;
    EXPECT_NE(html.find(name + ": #", first + 1), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tern::html_page_test
