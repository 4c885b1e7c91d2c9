#include "tern/learner/report/html_page.h"

#include <algorithm>
#include <cmath>

#include <c10/util/Exception.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/check.h"
#include "tern/learner/plots/plot.h"

namespace tern {

namespace {

constexpr const char* kHtmlStyle = R"css(
:root { color-scheme: light dark;
  --text: #1f2328; --soft: #59636e; --back: #ffffff; --panel: #f6f8fa;
  --rule: #d1d9e0; --grid: #e4e8ec; --accent: #0072B2; --shade: 0, 114, 178;
  --series-0: #0072B2; --series-1: #D55E00; --series-2: #009E73;
  --series-3: #CC79A7; --series-4: #B87E00; --series-5: #3A9BD0;
  --keyword: #cf222e; --string: #0a5c36; --number: #0550ae; }
@media (prefers-color-scheme: dark) { :root {
  --text: #e6edf3; --soft: #9198a1; --back: #0d1117; --panel: #161b22;
  --rule: #3d444d; --grid: #262c34; --accent: #58b0e8; --shade: 40, 110, 170;
  --series-0: #58b0e8; --series-1: #ff8a3d; --series-2: #2fc795;
  --series-3: #e39cc4; --series-4: #f0b429; --series-5: #8fd0f5;
  --keyword: #ff7b72; --string: #7ee2a8; --number: #79c0ff; }
  figure img { filter: brightness(.88); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.5rem clamp(1rem, 4vw, 3rem) 4rem;
  background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .8rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--rule); scroll-margin-top: 1rem; }
h3 { font-size: 1.02rem; margin: 1.5rem 0 .5rem; }
p { max-width: 46rem; margin: .6rem 0; overflow-wrap: anywhere; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .92rem; }
.scroll { overflow-x: auto; margin: .7rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .32rem .8rem; text-align: left; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { font-weight: 600; color: var(--soft); }
.number { text-align: right; }
table.matrix td { text-align: center; min-width: 2.6rem; border: 1px solid var(--rule); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr;
  gap: .25rem 1.2rem; margin: .7rem 0; font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: .7rem 0; padding: .8rem 1rem; overflow-x: auto; border-radius: 6px;
  font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  border: 1px solid var(--rule); }
pre.code { background: var(--panel); border-left: 3px solid var(--accent); }
.c { color: var(--soft); font-style: italic; } .k, .p { color: var(--keyword); }
.s { color: var(--string); } .n { color: var(--number); }
pre code { padding: 0; background: none; font-size: 1em; }
code { font: .88em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  background: var(--panel); padding: .1em .3em; border-radius: 4px; }
.plots { display: grid; gap: 1rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.plots svg { width: 100%; height: auto; max-width: 45rem; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; margin: .8rem 0; }
figure { margin: 0; max-width: 100%; }
figure img { max-width: 100%; image-rendering: auto; border-radius: 4px; display: block; }
figcaption { font-size: .85rem; color: var(--soft); margin-top: .25rem; }
)css";

// True for texts such as "12.5", "-3e-05", "00:42" and "5%", and for "#na#", a
// missing number.
bool is_number(const std::string& text) {
  return text.find_first_not_of("0123456789+-.,:e% ") == std::string::npos ||
         text == "nan" || text == "inf" || text == "-inf" || text == "#na#";
}

std::string cell(const char* tag, const std::string& text, bool number) {
  return fmt::format(
      "<{0}{1}>{2}</{0}>",
      tag,
      number ? " class=\"number\"" : "",
      html_escape(text));
}

}  // namespace

std::string base64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? bytes[i + j] : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

HtmlPage::HtmlPage(std::string title) : title_(std::move(title)) {}

void HtmlPage::heading(std::string_view text) {
  raw(fmt::format(
      "<h2 id=\"s{}\">{}</h2>\n",
      headings_.size(),
      html_escape(text)));
  headings_.emplace_back(text);
}

void HtmlPage::subheading(std::string_view text) {
  raw(fmt::format("<h3>{}</h3>\n", html_escape(text)));
}

void HtmlPage::paragraph(std::string_view text) {
  raw(fmt::format("<p>{}</p>\n", html_escape(text)));
}

void HtmlPage::preformatted(std::string_view text) {
  raw(fmt::format("<pre>{}</pre>\n", html_escape(text)));
}

void HtmlPage::code(std::string_view text) {
  raw(fmt::format("<pre class=\"code\">{}</pre>\n", highlight_cpp(text)));
}

void HtmlPage::table(
    const std::vector<std::string>& header,
    const std::vector<std::vector<std::string>>& rows) {
  std::vector<bool> numbers(header.size(), !rows.empty());
  for (const auto& row : rows) {
    TERN_CHECK_VALUE(
        row.size() == header.size(),
        "[HtmlPage::table] a row has {} cells; expected {}, one per name in "
        "the header.",
        row.size(),
        header.size());
    for (size_t i = 0; i < row.size(); ++i) {
      if (!is_number(row[i])) numbers[i] = false;
    }
  }
  const auto line = [&](const char* tag, const auto& cells) {
    std::string html;
    for (size_t i = 0; i < cells.size(); ++i) {
      html += cell(tag, cells[i], numbers[i]);
    }
    return "<tr>" + html + "</tr>";
  };
  raw("<div class=\"scroll\"><table><thead>" + line("th", header) +
      "</thead><tbody>\n");
  for (const auto& row : rows) raw(line("td", row) + "\n");
  raw("</tbody></table></div>\n");
}

void HtmlPage::properties(
    const std::vector<std::pair<std::string, std::string>>& values) {
  std::string html = "<dl>\n";
  for (const auto& [name, value] : values) {
    html += cell("dt", name, false) + cell("dd", value, false) + "\n";
  }
  raw(html + "</dl>\n");
}

void HtmlPage::matrix(
    const std::vector<std::string>& row_names,
    const std::vector<std::string>& column_names,
    const std::vector<std::vector<double>>& values) {
  double most = 0;
  TERN_CHECK_VALUE(
      values.size() == row_names.size(),
      "[HtmlPage::matrix] there are {} rows and {} names; expected a name "
      "for each.",
      values.size(),
      row_names.size());
  std::string html =
      "<div class=\"scroll\"><table class=\"matrix\"><tr><th></th>";
  for (const std::string& name : column_names) html += cell("th", name, false);
  html += "</tr>\n";
  for (const auto& row : values) {
    TERN_CHECK_VALUE(
        row.size() == column_names.size(),
        "[HtmlPage::matrix] a row has {} values; expected {}.",
        row.size(),
        column_names.size());
    for (const double value : row) {
      if (std::isfinite(value)) most = std::max(most, value);
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    html += "<tr>" + cell("th", row_names[i], false);
    for (const double value : values[i]) {
      const double share = std::isfinite(value) && most > 0 ? value / most : 0;
      html += fmt::format(
          "<td style=\"background:rgba(var(--shade),{:.2f})\">{}</td>",
          0.75 * std::sqrt(std::max(0.0, share)),
          value == std::round(value) ? fmt::format("{:.0f}", value)
                                     : fmt::format("{:.4g}", value));
    }
    html += "</tr>\n";
  }
  raw(html + "</table></div>\n");
}

void HtmlPage::plot(const Plot& plot) {
  plots({plot});
}

void HtmlPage::plots(const std::vector<Plot>& plots) {
  std::string html = "<div class=\"plots\">\n";
  for (const Plot& plot : plots) html += to_svg(plot, SvgUse::page);
  raw(html + "</div>\n");
}

void HtmlPage::pictures(const std::vector<Picture>& pictures) {
  std::string html = "<div class=\"pictures\">\n";
  for (const Picture& picture : pictures) {
    html += fmt::format(
        "<figure><img alt=\"{0}\" src=\"data:image/png;base64,{1}\">"
        "<figcaption>{0}</figcaption></figure>\n",
        html_escape(picture.caption),
        base64(picture.png));
  }
  raw(html + "</div>\n");
}

void HtmlPage::raw(std::string_view html) {
  body_ += html;
}

std::string HtmlPage::to_string() const {
  const std::string title = html_escape(title_);
  std::string contents;
  if (headings_.size() >= 3) {
    contents = "<nav>";
    for (size_t i = 0; i < headings_.size(); ++i) {
      contents +=
          fmt::format("<a href=\"#s{}\">{}</a>", i, html_escape(headings_[i]));
    }
    contents += "</nav>\n";
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; style-src 'unsafe-inline'; img-src data:\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<h1>{0}</h1>\n{2}{3}</body>\n</html>\n",
      title,
      kHtmlStyle,
      contents,
      body_);
}

void HtmlPage::save(const std::filesystem::path& file) const {
  AtomicFile out(file);
  out.write(to_string());
  out.commit(/*durable=*/false);
}

}  // namespace tern
