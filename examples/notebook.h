#pragma once

#include <filesystem>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <tern/learner/plots/plot.h>
#include <tern/learner/report/html_page.h>

namespace tern::examples {

class CapturedOutput;

/// Writes a page of a program that reads like a notebook: words, the program's
/// own code, what it printed, its plots and images.
///
///   Notebook note("Fitting a curve");
///   note.text("# Samples\nA parabola with `noise`.");
///   const auto y = 5 * x * x + 3;
///   fmt::print("{}\n", y);
///
/// The file's first comment opens the page; the code after a `text` follows it
/// as a cell, without calls of the Notebook and the exit code, and what the
/// program printed there follows the code, epochs as a table. The command that
/// started the program ends it.
///
/// A program of your own includes <tern/examples/notebook.h> and links
/// tern::notebook. The page is written to the folder that TERN_PAGES names;
/// without it the program just runs and prints.
class Notebook {
 public:
  using Place = std::source_location;

  /// \param place  The program's source; a relative path is looked for in every
  ///     folder above the program.
  /// \throws IoError if there is to be a page and the source is not found.
  explicit Notebook(std::string title, Place place = Place::current());
  /// Writes the page. Trouble with the disk is told on stderr.
  ~Notebook();
  Notebook(const Notebook&) = delete;
  Notebook& operator=(const Notebook&) = delete;

  /// Prose: paragraphs, "# headings", "- lists", `code` and **bold**. The code
  /// from here to the next `text` follows as a cell, once.
  void text(std::string_view markdown, Place place = Place::current());
  /// Shows a function or class of the file with the comment above it.
  void definition(std::string_view name);
  void table(
      const std::vector<std::string>& header,
      const std::vector<std::vector<std::string>>& rows);
  void plot(const Plot& plot);
  /// Image files, side by side, each with its name below.
  void pictures(const std::vector<std::filesystem::path>& files);

 private:
  void show_code_after(size_t line);
  void flush_output();

  std::filesystem::path folder_, name_;  // empty folder: no page
  std::vector<std::string> lines_;       // of the source file
  std::vector<size_t> shown_;            // lines whose cells are in the page
  HtmlPage page_;
  std::unique_ptr<CapturedOutput> output_;  // none without a page
};

/// Writes the page of a program that has no Notebook, after it has run: the
/// file's first comment, the whole code, what it printed and the plots that it
/// drew. It goes where a Notebook's goes.
///
/// \param output   File with what the program printed.
/// \param plots    SVG files.
/// \param command  What started the program.
/// \throws std::exception if a file cannot be read or written.
void write_page(
    const std::string& title,
    const std::filesystem::path& source,
    const std::filesystem::path& output,
    const std::vector<std::filesystem::path>& plots,
    const std::string& command);

}  // namespace tern::examples
