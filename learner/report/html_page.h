#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/support/html_text.h"

namespace tern {

struct Plot;  // learner/plots/plot.h

/// A self-contained HTML file: style, plots and images are embedded, and a
/// Content-Security-Policy forbids loading anything from outside. Follows the
/// reader's light or dark theme, for narrow and wide windows. All text is
/// escaped.
///
///   HtmlPage page("My run");
///   page.heading("Results");
///   page.table({"epoch", "loss"}, {{"0", "0.35"}});
///   page.save("run.html");
class HtmlPage {
 public:
  explicit HtmlPage(std::string title);

  /// Three or more headings get a table of contents.
  void heading(std::string_view text);
  void subheading(std::string_view text);
  void paragraph(std::string_view text);
  /// Text with line breaks, monospaced.
  void preformatted(std::string_view text);
  /// C++, highlighted.
  void code(std::string_view text);
  /// Rows as long as `header`; columns of numbers are right-aligned.
  void table(
      const std::vector<std::string>& header,
      const std::vector<std::vector<std::string>>& rows);
  /// Pairs of names and values.
  void properties(
      const std::vector<std::pair<std::string, std::string>>& values);
  /// Shaded cells, for a confusion matrix: `values[row][column]`, >= 0.
  void matrix(
      const std::vector<std::string>& row_names,
      const std::vector<std::string>& column_names,
      const std::vector<std::vector<double>>& values);
  void plot(const Plot& plot);
  /// Side by side where there is room.
  void plots(const std::vector<Plot>& plots);

  struct Picture {
    std::vector<uint8_t> png;
    std::string caption;
  };
  /// Side by side where there is room.
  void pictures(const std::vector<Picture>& pictures);

  /// Unescaped HTML.
  void raw(std::string_view html);

  std::string to_string() const;
  /// Replaces the file atomically.
  /// \throws IoError if it cannot be written; an older one is kept then.
  void save(const std::filesystem::path& file) const;

 private:
  std::string title_, body_;
  std::vector<std::string> headings_;
};

/// RFC 4648.
std::string base64(std::span<const uint8_t> bytes);

}  // namespace tern
