#include "tern/data/formats/csv.h"

#include <algorithm>
#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {
namespace {

constexpr size_t kMaxColumns = 10'000;
constexpr int64_t kMaxTableBytes = int64_t{256} << 20;

/// Parses a table cell by cell.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& path, char delimiter)
      : text_(text), path_(path), delimiter_(delimiter) {}

  /// Reads the next row that is not empty.
  /// \return false at the end.
  bool next(std::vector<std::string>& row) {
    do {
      row.clear();
      if (at_ == text_.size()) return false;
      row_line_ = line_;
      do {
        if (row.size() == kMaxColumns) {
          fail(row_line_, "there are more than 10,000 cells");
        }
        row.push_back(cell());
      } while (take(delimiter_));
      end_line();
    } while (row.size() == 1 && row[0].empty());
    return true;
  }

  /// Line on which the last row began.
  size_t row_line() const { return row_line_; }

  [[noreturn]] void fail(size_t line, const std::string& what) const {
    throw DataError(
        path_ + ":" + std::to_string(line),
        what + ". Correct this line of the table.");
  }

 private:
  bool take(char wanted) {
    const bool is_there = at_ < text_.size() && text_[at_] == wanted;
    at_ += is_there ? 1 : 0;
    return is_there;
  }

  std::string cell() {
    if (take('"')) return quoted_cell();
    const size_t begin = at_;
    const char ends[] = {delimiter_, '\n', '\r', '\0'};
    at_ = std::min(text_.find_first_of(ends, begin), text_.size());
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted_cell() {
    std::string cell;
    for (;; ++at_) {
      if (at_ == text_.size()) {
        fail(row_line_, "a quote is not closed");
      }
      if (text_[at_] == '"') {
        ++at_;
        if (at_ == text_.size() || text_[at_] != '"') return cell;
      }
      line_ += text_[at_] == '\n' ? 1 : 0;
      cell += text_[at_];
    }
  }

  void end_line() {
    take('\r');
    if (!take('\n') && at_ != text_.size()) {
      fail(line_, "text follows a closing quote or a carriage return");
    }
    ++line_;
  }

  std::string_view text_;
  const std::string& path_;
  char delimiter_;
  size_t at_ = 0, line_ = 1, row_line_ = 1;
};

}  // namespace

size_t CsvTable::column(std::string_view name) const {
  const auto at = std::find(columns.begin(), columns.end(), name);
  if (at == columns.end()) {
    std::string all;
    for (const std::string& column : columns) {
      all += (all.empty() ? "" : ", ") + column;
    }
    throw DataError(
        path,
        "has no column '" + std::string(name) + "'; expected one of: " + all +
            ".");
  }
  return static_cast<size_t>(at - columns.begin());
}

CsvTable parse_csv(
    std::span<const uint8_t> bytes,
    std::string path,
    const CsvOptions& options) {
  std::string_view text = as_text(bytes);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  CsvTable table{.path = std::move(path)};
  CsvReader reader(text, table.path, options.delimiter);
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    reader.fail(
        1 + static_cast<size_t>(
                std::count(text.begin(), text.begin() + zero, '\n')),
        "contains a zero byte; expected text");
  }
  if (!reader.next(table.columns)) {
    throw DataError(
        table.path,
        "is empty; expected a first line with the column names.");
  }
  std::vector<std::string> row;
  if (!options.has_header) {
    row = table.columns;
    for (size_t i = 0; i < row.size(); ++i) {
      table.columns[i] = std::to_string(i);
    }
    table.rows.push_back(std::move(row));
    table.lines.push_back(reader.row_line());
  }
  while (reader.next(row)) {
    if (row.size() != table.columns.size()) {
      reader.fail(
          reader.row_line(),
          "the line has " + std::to_string(row.size()) + " cells; expected " +
              std::to_string(table.columns.size()) + ", as in the first line");
    }
    table.rows.push_back(std::move(row));
    table.lines.push_back(reader.row_line());
  }
  return table;
}

CsvTable read_csv(
    const std::filesystem::path& path,
    const CsvOptions& options) {
  return parse_csv(read_file(path, kMaxTableBytes), path.string(), options);
}

}  // namespace tern
