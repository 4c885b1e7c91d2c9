#include "notebook.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <tern/data/error_text.h>
#include <tern/data/formats/error.h>
#include <tern/data/formats/file_io.h>
#include <tern/learner/report/html_page.h>

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

// The compiler may have been given a path from the build folder, which the
// program is in.
fs::path source_file(const char* compiled_as) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (folder != folder.root_path()) {
    folder = folder.parent_path();
    const fs::path file = folder / compiled_as;
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
    if (is_header) {
      flush();
      header = std::move(words);
    } else if (!header.empty() && words.size() == header.size()) {
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

// The head of every page: the way back, and the file's first comment.
void begin_page(HtmlPage& page, const std::vector<std::string>& lines) {
  page.raw("<nav><a href=\"index.html\">All examples</a></nav>\n");
  add_markdown(page, first_comment(lines));
}

// What stands between two marks on the page in `html`, or "".
std::string between(
    const std::string& html,
    const std::string& open,
    const std::string& close) {
  const size_t begin = html.find(open);
  if (begin == std::string::npos) return "";
  const size_t end = html.find(close, begin);
  if (end == std::string::npos) return "";
  return html.substr(begin + open.size(), end - begin - open.size());
}

// The other pages of the folder, with how each begins.
void write_index(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    if (file.extension() == ".html" && file.filename() != "index.html") {
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
  HtmlPage index("Tern by example");
  for (const fs::path& file : files) {
    const std::string html = text_of(file);
    index.raw(fmt::format(
        "<h3><a href=\"{}\">{}</a></h3>\n<p>{}</p>\n",
        html_escape(file.filename().string()),
        between(html, "<title>", "</title>"),
        between(html, "<p>", "</p>")));
  }
  index.save(folder / "index.html");
}

void save_page(const HtmlPage& page, const fs::path& folder, fs::path name) {
  make_folders(folder);
  page.save(folder / name.concat(".html"));
  write_index(folder);
}

}  // namespace

Notebook::Notebook(std::string title, Place place)
    : folder_(pages_folder()), page_(std::move(title)) {
  if (folder_.empty()) return;
  const fs::path source = source_file(place.file_name());
  name_ = source.stem();
  lines_ = lines_of(source);
  begin_page(page_, lines_);
  show_code_after(place.line());
  output_ = std::make_unique<CapturedOutput>();
}

Notebook::~Notebook() {
  if (folder_.empty()) return;
  try {
    flush_output();
    output_.reset();
    save_page(page_, folder_, name_);
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
  for (const auto& file : files) {
    pictures.push_back({read_file(file), file.stem().string()});
  }
  page_.pictures(pictures);
}

void write_page(
    const std::string& title,
    const fs::path& source,
    const fs::path& output,
    const std::vector<fs::path>& plots) {
  if (pages_folder().empty()) return;
  HtmlPage page(title);
  std::vector<std::string> lines = lines_of(source);
  begin_page(page, lines);
  std::erase_if(lines, [](const std::string& line) {
    return line.starts_with("//");
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
  save_page(page, pages_folder(), source.stem());
}

}  // namespace tern::examples
