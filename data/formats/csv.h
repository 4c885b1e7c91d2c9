#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// A table from a CSV file (RFC 4180): cells in quotes may hold delimiters,
/// line breaks and doubled quotes; lines end in LF or CRLF; a byte order mark
/// and empty lines are passed over. Cells are bytes, kept as they are.
///
///   CsvTable table = read_csv("labels.csv");
///   table.rows[0][table.column("label")];
struct CsvTable {
  /// Its file, for error messages.
  std::string path;
  std::vector<std::string> columns = {};
  /// As many cells in each as there are columns.
  std::vector<std::vector<std::string>> rows = {};
  /// The line in the file, from 1, on which each row begins.
  std::vector<size_t> lines = {};

  /// The place of a column. \throws DataError naming those there are.
  size_t column(std::string_view name) const;
};

struct CsvOptions {
  /// Separator of the cells: ',', ';' or '\t'.
  char delimiter = ',';
  /// The first line has the names of the columns; otherwise they are called "0",
  /// "1" and so on.
  bool has_header = true;
};

/// \param path  Its name, for error messages.
/// \throws DataError naming the line, if a quote is not closed, a row has more
///         or fewer cells than there are columns, there is no first line or a
///         byte is zero.
CsvTable parse_csv(
    std::span<const uint8_t> bytes,
    std::string path,
    const CsvOptions& options = {});

/// \throws IoError and as `parse_csv`.
CsvTable read_csv(
    const std::filesystem::path& path,
    const CsvOptions& options = {});

}  // namespace tern
