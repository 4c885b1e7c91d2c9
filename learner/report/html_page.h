#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tern {

struct Plot;  // learner/report/plot.h

/// One HTML file that needs nothing else: style, curves and pictures are in it,
/// and the browser is told to load nothing from outside. Light or dark as the
/// reader's system is, for narrow and wide windows. All text is escaped.
///
///   HtmlPage page("My run");
///   page.heading("Results");
///   page.table({"epoch", "loss"}, {{"0", "0.35"}});
///   page.save("run.html");
class HtmlPage {
 public:
  explicit HtmlPage(std::string title);

  /// Headings get an anchor, and a place in the list of contents when there are
  /// three or more.
  void heading(std::string_view text);
  void subheading(std::string_view text);
  void paragraph(std::string_view text);
  /// Text with line breaks, in letters of one width.
  void preformatted(std::string_view text);
  /// Source code.
  void code(std::string_view text);
  /// Rows as long as `header`; a column of numbers is set to the right.
  void table(
      const std::vector<std::string>& header,
      const std::vector<std::vector<std::string>>& rows);
  /// Pairs of names and values.
  void properties(
      const std::vector<std::pair<std::string, std::string>>& values);
  /// Numbers as shades: `values[row][column]`, 0 or more. For a confusion
  /// matrix.
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

  /// HTML as it is: the caller has escaped what it holds.
  void raw(std::string_view html);

  std::string to_string() const;
  /// \throws IoError if the file cannot be written; an older one is kept then.
  void save(const std::filesystem::path& file) const;

 private:
  std::string title_, body_;
  std::vector<std::string> headings_;
};

/// RFC 4648.
std::string base64(std::span<const uint8_t> bytes);

}  // namespace tern
