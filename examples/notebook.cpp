#include "notebook.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <tern/data/formats/error.h>
#include <tern/data/formats/file_io.h>
#include <tern/data/support/error_text.h>
#include <tern/learner/report/html_page.h>

#include "captured_output.h"

namespace tern::examples {

namespace {

namespace fs = std::filesystem;

fs::path pages_folder() {
  const char* const folder = std::getenv("TERN_PAGES");
  return folder ? folder : "";
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const fs::path& file) {
  const auto bytes = read_file(file);
  return {bytes.begin(), bytes.end()};
}

// The compiler may have named the file by a path that is relative to a folder
// above the program: the build folder, or that of the project around it.
fs::path source_file(const char* compiled_as) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (folder != folder.root_path()) {
    folder = folder.parent_path();
    fs::path file = folder / compiled_as;
    if (fs::exists(file, error)) return file;
  }
  throw IoError(compiled_as, "find the program's source", ENOENT);
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(' ') == std::string::npos;
}

bool defines(const std::string& line, std::string_view name) {
  if (line.empty() || line[0] == ' ' || line[0] == '/') return false;
  const size_t at = line.find(name);
  if (at == std::string::npos) return false;
  const bool is_class =
      line.starts_with("struct ") || line.starts_with("class ");
  const size_t after = at + name.size();
  return (at == 0 || line[at - 1] == ' ') && after < line.size() &&
         line[after] == (is_class ? ' ' : '(');
}

// A call of the Notebook, or the program's exit code: no part of what the page
// tells.
bool is_own_call(const std::string& line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size()))
      .starts_with("note.");
}

bool is_exit_code(const std::string& line) {
  return line.starts_with("  return ") &&
         (line.ends_with(" 0;") || line.ends_with("? 0 : 1;"));
}

bool begins_cell(const std::string& line) {
  return line.find("note.text(") != std::string::npos ||
         line.find("note.definition(") != std::string::npos;
}

// Without the indentation that all lines share, and blank lines at the ends.
std::string joined(std::vector<std::string> lines) {
  while (!lines.empty() && is_blank(lines.back())) lines.pop_back();
  while (!lines.empty() && is_blank(lines.front())) lines.erase(lines.begin());
  size_t indent = std::string::npos;
  for (const std::string& line : lines) {
    if (!is_blank(line)) indent = std::min(indent, line.find_first_not_of(' '));
  }
  std::string text;
  for (const std::string& line : lines) {
    text += (is_blank(line) ? "" : line.substr(indent)) + "\n";
  }
  return text;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What a program printed: tables of epochs as tables, the rest as it is.
void add_output(HtmlPage& page, const std::string& printed) {
  std::istringstream stream(printed);
  std::string text;
  std::vector<std::string> header;
  size_t first_words = 0;  // of a header's first line
  std::vector<std::vector<std::string>> rows;
  const auto flush = [&] {
    if (!rows.empty()) page.table(header, rows);
    if (!text.empty()) page.preformatted(text);
    rows.clear();
    text.clear();
  };
  for (std::string line; std::getline(stream, line);) {
    std::vector<std::string> words = words_of(line);
    const bool is_header =
        words.size() > 2 && words[0] == "epoch" && words[1] == "train_loss";
    // A row of more than 80 columns goes on in an indented line.
    const bool goes_on =
        !header.empty() && line.starts_with("  ") && !words.empty() &&
        (rows.empty() || rows.back().size() + words.size() <= header.size());
    if (is_header) {
      flush();
      first_words = words.size();
      header = std::move(words);
    } else if (goes_on) {
      std::vector<std::string>& row = rows.empty() ? header : rows.back();
      row.insert(row.end(), words.begin(), words.end());
    } else if (!header.empty() && words.size() == first_words) {
      rows.push_back(std::move(words));
    } else {
      if (!header.empty()) flush();
      header.clear();
      text += line + "\n";
    }
  }
  flush();
}

// What stands between pairs of `mark` gets the tag.
std::string
tagged(std::string text, const std::string& mark, const std::string& tag) {
  for (size_t open = 0; (open = text.find(mark, open)) != std::string::npos;) {
    const size_t close = text.find(mark, open + mark.size());
    if (close == std::string::npos) break;
    text.replace(close, mark.size(), "</" + tag + ">");
    text.replace(open, mark.size(), "<" + tag + ">");
    open = close;
  }
  return text;
}

std::string inline_html(std::string_view text) {
  return tagged(tagged(html_escape(text), "`", "code"), "**", "strong");
}

void add_markdown(HtmlPage& page, std::string_view markdown) {
  std::string paragraph, list;
  const auto flush = [&] {
    if (!paragraph.empty()) {
      page.raw("<p>" + inline_html(paragraph) + "</p>\n");
    }
    if (!list.empty()) page.raw("<ul>" + list + "</ul>\n");
    paragraph.clear();
    list.clear();
  };
  while (!markdown.empty()) {
    const size_t end = std::min(markdown.find('\n'), markdown.size());
    const std::string_view line = markdown.substr(0, end);
    markdown.remove_prefix(std::min(end + 1, markdown.size()));
    if (line.starts_with("# ")) {
      flush();
      page.heading(line.substr(2));
    } else if (line.starts_with("- ")) {
      if (!paragraph.empty()) flush();
      list += "<li>" + inline_html(line.substr(2)) + "</li>";
    } else if (line.empty()) {
      flush();
    } else {
      if (!list.empty()) flush();
      paragraph += (paragraph.empty() ? "" : " ") + std::string(line);
    }
  }
  flush();
}

// The comment that a file begins with.
std::string first_comment(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!line.starts_with("//")) break;
    text += line.substr(std::min<size_t>(3, line.size())) + "\n";
  }
  return text;
}

// As a shell takes it; the program without its folder.
std::string command_line() {
  std::ifstream stream("/proc/self/cmdline");
  std::string line;
  for (std::string word; std::getline(stream, word, '\0');) {
    if (line.empty()) {
      line = fs::path(word).filename();
      continue;
    }
    const bool is_plain =
        !word.empty() &&
        word.find_first_of(" \t\"'$*?&|;<>()\\") == std::string::npos;
    line += is_plain ? " " + word : " '" + word + "'";
  }
  return line;
}

void save_page(
    HtmlPage& page,
    const std::string& command,
    const fs::path& name) {
  page.raw(fmt::format(
      "<p class=\"made\">Made by <code>{}</code></p>\n",
      html_escape(command)));
  const fs::path folder = pages_folder();
  make_folders(folder);
  page.save(folder / fs::path(name).concat(".html"));
}

}  // namespace

Notebook::Notebook(std::string title, Place place)
    : folder_(pages_folder()), page_(std::move(title)) {
  if (folder_.empty()) return;
  const fs::path source = source_file(place.file_name());
  name_ = source.stem();
  lines_ = lines_of(source);
  add_markdown(page_, first_comment(lines_));
  show_code_after(place.line());
  output_ = std::make_unique<CapturedOutput>();
}

Notebook::~Notebook() {
  if (folder_.empty()) return;
  try {
    flush_output();
    output_.reset();
    save_page(page_, command_line(), name_);
  } catch (const std::exception& error) {
    fmt::print(stderr, "no page was written: {}\n", message_of(error));
  }
}

// `line`, counted from 1, is one of the call that begins the cell.
void Notebook::show_code_after(size_t line) {
  if (line == 0 || line > lines_.size()) return;
  size_t first = line - 1;
  while (first < lines_.size() && !lines_[first].ends_with(");")) ++first;
  ++first;
  if (std::find(shown_.begin(), shown_.end(), first) != shown_.end()) return;
  shown_.push_back(first);
  std::vector<std::string> cell;
  for (size_t i = first; i < lines_.size(); ++i) {
    const std::string& code = lines_[i];
    if (begins_cell(code) || code.starts_with("}")) break;
    if (is_own_call(code)) {
      while (i < lines_.size() && !lines_[i].ends_with(");")) ++i;
    } else if (!is_exit_code(code)) {
      cell.push_back(code);
    }
  }
  const std::string code = joined(cell);
  if (!code.empty()) page_.code(code);
}

void Notebook::flush_output() {
  const std::string printed = output_ ? output_->take() : "";
  add_output(page_, printed);
}

void Notebook::text(std::string_view markdown, Place place) {
  if (folder_.empty()) return;
  flush_output();
  add_markdown(page_, markdown);
  show_code_after(place.line());
}

void Notebook::definition(std::string_view name) {
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (!defines(lines_[i], name)) continue;
    size_t first = i;
    // The return type or `template` may have a line of its own.
    while (first > 0 && !lines_[first - 1].empty()) --first;
    size_t last = i;
    while (last < lines_.size() && !lines_[last].starts_with("}")) ++last;
    last = std::min(last + 1, lines_.size());
    flush_output();
    page_.code(joined(
        {lines_.begin() + static_cast<int64_t>(first),
         lines_.begin() + static_cast<int64_t>(last)}));
    return;
  }
}

void Notebook::table(
    const std::vector<std::string>& header,
    const std::vector<std::vector<std::string>>& rows) {
  flush_output();
  page_.table(header, rows);
}

void Notebook::plot(const Plot& plot) {
  flush_output();
  page_.plot(plot);
}

void Notebook::pictures(const std::vector<std::filesystem::path>& files) {
  flush_output();
  std::vector<HtmlPage::Picture> pictures;
  pictures.reserve(files.size());
  for (const auto& file : files) {
    pictures.push_back({read_file(file), file.stem().string()});
  }
  page_.pictures(pictures);
}

void write_page(
    const std::string& title,
    const fs::path& source,
    const fs::path& output,
    const std::vector<fs::path>& plots,
    const std::string& command) {
  if (pages_folder().empty()) return;
  HtmlPage page(title);
  std::vector<std::string> lines = lines_of(source);
  add_markdown(page, first_comment(lines));
  std::erase_if(lines, [](const std::string& line) {
    return line.starts_with("//") || is_exit_code(line);
  });
  page.code(joined(lines));
  add_output(page, text_of(output));
  for (const fs::path& plot : plots) {
    page.raw(fmt::format(
        "<figure><img alt=\"{}\" "
        "src=\"data:image/svg+xml;base64,{}\"></figure>\n",
        html_escape(plot.stem().string()),
        base64(read_file(plot))));
  }
  save_page(page, command, source.stem());
}

}  // namespace tern::examples
