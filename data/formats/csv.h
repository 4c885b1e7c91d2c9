#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// A table from a CSV file (RFC 4180). Quoted cells may contain delimiters,
/// line breaks and doubled quotes; lines end in LF or CRLF; a byte order mark
/// and empty lines are skipped. Cells contain the bytes of the file unchanged.
///
///   CsvTable table = read_csv("labels.csv");
///   table.rows[0][table.column("label")];
struct CsvTable {
  /// The file, for error messages.
  std::string path;
  std::vector<std::string> columns = {};
  /// Each row has one cell per column.
  std::vector<std::vector<std::string>> rows = {};
  /// Line in the file, from 1, on which each row begins.
  std::vector<size_t> lines = {};

  /// Returns the index of a column.
  /// \throws DataError that lists the existing columns.
  size_t column(std::string_view name) const;
};

struct CsvOptions {
  /// Cell separator: ',', ';' or '\t'.
  char delimiter = ',';
  /// True if the first line has the column names; otherwise the columns are
  /// named "0", "1" and so on.
  bool has_header = true;
};

/// \param path  File name for error messages.
/// \throws DataError that names the line if a quote is not closed, a row's
///         number of cells differs from the number of columns, the first line
///         is missing or a byte is zero.
CsvTable parse_csv(
    std::span<const uint8_t> bytes,
    std::string path,
    const CsvOptions& options = {});

/// \throws IoError, and the errors of `parse_csv`.
CsvTable read_csv(
    const std::filesystem::path& path,
    const CsvOptions& options = {});

}  // namespace tern
