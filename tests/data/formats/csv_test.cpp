#include "tern/data/formats/csv.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::csv_test {
namespace {

using Rows = std::vector<std::vector<std::string>>;

CsvTable parse(const std::string& text, const CsvOptions& options = {}) {
  return parse_csv(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()},
      "labels.csv",
      options);
}

TEST(Csv, ReadsColumnsAndRows) {
  const CsvTable table = parse("name,label\na.jpg,cat\nb.jpg,dog\n");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"name", "label"}));
  EXPECT_EQ(table.rows, (Rows{{"a.jpg", "cat"}, {"b.jpg", "dog"}}));
  EXPECT_EQ(table.lines, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(table.column("label"), 1u);
}

TEST(Csv, NumbersTheColumnsOfATableWithoutAHeader) {
  const CsvTable table = parse(
      "\na.jpg\tcat\nb.jpg\tdog\n",
      {.delimiter = '\t', .has_header = false});
  EXPECT_EQ(table.columns, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(table.rows, (Rows{{"a.jpg", "cat"}, {"b.jpg", "dog"}}));
  EXPECT_EQ(table.lines, (std::vector<size_t>{2, 3}));
}

TEST(Csv, KeepsDelimitersQuotesAndLineBreaksInsideQuotes) {
  const CsvTable table =
      parse("name,label\n\"a,1.jpg\",\"say \"\"x\"\"\"\n\"b\nc\",\nd,e");
  EXPECT_EQ(
      table.rows,
      (Rows{{"a,1.jpg", "say \"x\""}, {"b\nc", ""}, {"d", "e"}}));
  EXPECT_EQ(table.lines, (std::vector<size_t>{2, 3, 5}));
}

TEST(Csv, AcceptsWindowsLinesAByteOrderMarkAndEmptyLines) {
  const CsvTable table =
      parse("\xef\xbb\xbfname;label\r\n\r\na;b\r\n", {.delimiter = ';'});
  EXPECT_EQ(table.columns[0], "name");
  EXPECT_EQ(table.rows, (Rows{{"a", "b"}}));
}

TEST(Csv, KeepsNamesWithAnyBytes) {
  const CsvTable table = parse("name\ncafe\xcc\x81 \xff.jpg\n");
  EXPECT_EQ(table.rows[0][0], "cafe\xcc\x81 \xff.jpg");
}

TEST(Csv, NamesTheLineThatIsWrong) {
  expect_error<DataError>(
      [] { parse("a,b\n1,2\n3\n"); },
      {"labels.csv:3", "1 cells", "expected 2"});
  expect_error<DataError>(
      [] { parse("a,b\n\"1,2\n3,4\n"); },
      {"labels.csv:2", "quote"});
  expect_error<DataError>(
      [] { parse("a,b\n\"1\"x,2\n"); },
      {"labels.csv:2", "closing quote"});
  expect_error<DataError>(
      [] { parse(std::string("a\nb\0c", 5)); },
      {"labels.csv:2", "zero byte"});
  expect_error<DataError>([] { parse(""); }, {"labels.csv", "is empty"});
  expect_error<DataError>(
      [] { parse(std::string(20'000, ',')); },
      {"labels.csv:1", "10,000 cells"});
}

TEST(Csv, NamesTheAvailableColumns) {
  expect_error<DataError>(
      [] { parse("name,label\n").column("tag"); },
      {"'tag'", "name, label"});
}

}  // namespace
}  // namespace tern::csv_test
