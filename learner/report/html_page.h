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
/// reader's light or dark theme and fits narrow and wide windows. All text is
/// escaped.
///
///   HtmlPage page("My run");
///   page.heading("Results");
///   page.table({"epoch", "loss"}, {{"0", "0.35"}});
///   page.save("run.html");
class HtmlPage {
 public:
  explicit HtmlPage(std::string title);

  /// A page with three or more headings gets a table of contents.
  void heading(std::string_view text);
  void subheading(std::string_view text);
  void paragraph(std::string_view text);
  /// Monospaced text with line breaks.
  void preformatted(std::string_view text);
  /// C++ code, highlighted.
  void code(std::string_view text);
  /// Adds a table. Each row has as many cells as `header`; columns of numbers
  /// are right-aligned.
  void table(
      const std::vector<std::string>& header,
      const std::vector<std::vector<std::string>>& rows);
  /// Pairs of names and values.
  void properties(
      const std::vector<std::pair<std::string, std::string>>& values);
  /// Shaded cells, for example of a confusion matrix: `values[row][column]`
  /// must be >= 0.
  void matrix(
      const std::vector<std::string>& row_names,
      const std::vector<std::string>& column_names,
      const std::vector<std::vector<double>>& values);
  void plot(const Plot& plot);
  /// Side by side if the window is wide enough.
  void plots(const std::vector<Plot>& plots);

  struct Picture {
    std::vector<uint8_t> png;
    std::string caption;
  };
  /// Side by side if the window is wide enough.
  void pictures(const std::vector<Picture>& pictures);

  /// Adds unescaped HTML.
  void raw(std::string_view html);

  std::string to_string() const;
  /// Writes the page and replaces an existing file atomically.
  /// \throws IoError if the file cannot be written; an existing file is then
  ///         unchanged.
  void save(const std::filesystem::path& file) const;

 private:
  std::string title_, body_;
  std::vector<std::string> headings_;
};

/// Encodes bytes in base64 (RFC 4648).
std::string base64(std::span<const uint8_t> bytes);

}  // namespace tern
