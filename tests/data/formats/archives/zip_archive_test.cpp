#include "tern/data/formats/archives/zip_archive.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/zip_writer.h"

namespace tern::zip_archive_test {
namespace {

using Bytes = std::vector<uint8_t>;

// Returns an archive of two files: 5 bytes of "a/x" and 3 bytes of "a/y".
Bytes archive(uint64_t zip64_from = 0xffffffff) {
  const TempFolder temp;
  AtomicFile file(temp / "a.zip");
  ZipWriter zip(file, zip64_from);
  zip.add("a/x", "hello");
  zip.add("a/y", "you");
  zip.finish();
  file.commit(/*durable=*/false);
  return read_file(temp / "a.zip");
}

ZipArchive open(const Bytes& bytes) {
  return ZipArchive(ByteFile(bytes, "a.zip"));
}

std::string text_of(const ZipArchive& zip, const std::string& name) {
  const Bytes bytes = zip.read(name, 100);
  return {bytes.begin(), bytes.end()};
}

// Returns the position of the nth occurrence of `text`, counted from 0.
size_t find(const Bytes& bytes, const std::string& text, int nth = 0) {
  size_t at = 0;
  const std::string all(bytes.begin(), bytes.end());
  for (at = all.find(text); nth > 0; --nth) at = all.find(text, at + 1);
  EXPECT_NE(at, all.npos);
  return at;
}

TEST(ZipArchive, ReadsWhatTheWriterWrites) {
  for (const uint64_t zip64_from : {uint64_t{0xffffffff}, uint64_t{1}}) {
    const Bytes bytes = archive(zip64_from);
    const ZipArchive zip = open(bytes);
    EXPECT_EQ(zip.entries().size(), 2u);
    EXPECT_EQ(text_of(zip, "a/x"), "hello");
    EXPECT_EQ(text_of(zip, "a/y"), "you");
    EXPECT_EQ(zip.find("a/z"), nullptr);
    expect_error<DataError>([&] { text_of(zip, "a/z"); }, {"'a/z'"});
    expect_error<DataError>(
        [&] { zip.read("a/x", 4); },
        {"'a/x' has 5 bytes", "at most 4"});
  }
}

TEST(ZipWriter, AlignsEntries) {
  const TempFolder temp;
  AtomicFile file(temp / "a.zip");
  ZipWriter zip(file);
  for (int i = 0; i < 70; ++i) {
    const Bytes bytes(static_cast<size_t>(i), 'x');
    zip.add(std::string(static_cast<size_t>(i + 1), 'n'), bytes, 64);
  }
  zip.finish();
  file.commit(/*durable=*/false);
  const ZipArchive archive{ByteFile(temp / "a.zip")};
  EXPECT_EQ(archive.entries().size(), 70u);
  for (const auto& [name, entry] : archive.entries()) {
    EXPECT_EQ(entry.begin % 64, 0u) << name;
    EXPECT_EQ(entry.size, name.size() - 1);
  }
}

TEST(ZipArchive, RejectsAWrongChecksum) {
  Bytes bytes = archive();
  bytes[find(bytes, "hello")] ^= 1;
  const ZipArchive zip = open(bytes);
  expect_error<DataError>([&] { text_of(zip, "a/x"); }, {"'a/x'", "CRC-32"});
  EXPECT_EQ(text_of(zip, "a/y"), "you");
}

TEST(ZipArchive, RejectsEveryTruncation) {
  for (const uint64_t zip64_from : {uint64_t{0xffffffff}, uint64_t{1}}) {
    const Bytes whole = archive(zip64_from);
    for (size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + size);
      EXPECT_THROW(open(cut), DataError) << size;
    }
  }
}

struct Case {
  const char* name;
  // Changes the archive at this offset from the nth of these signatures.
  const char* signature;
  int nth;
  size_t offset;
  uint64_t value;
  int bytes;
  const char* word;
};

class ZipFaults : public testing::TestWithParam<Case> {};

TEST_P(ZipFaults, AreRejected) {
  const Case& c = GetParam();
  Bytes bytes = archive();
  const size_t at = find(bytes, c.signature, c.nth) + c.offset;
  for (int i = 0; i < c.bytes; ++i) {
    bytes[at + i] = static_cast<uint8_t>(c.value >> (8 * i));
  }
  expect_error<DataError>([&] { open(bytes); }, {"a.zip", c.word});
}

constexpr const char* kHeader = "PK\x03\x04";
constexpr const char* kRow = "PK\x01\x02";
constexpr const char* kEnd = "PK\x05\x06";

INSTANTIATE_TEST_SUITE_P(
    All,
    ZipFaults,
    testing::Values(
        Case{"encrypted", kRow, 0, 8, 1, 2, "encrypted"},
        Case{"compressed", kRow, 0, 10, 8, 2, "compressed"},
        Case{"compressed_in_header", kHeader, 0, 8, 8, 2, "differs"},
        Case{"two_sizes", kRow, 0, 20, 4, 4, "two different sizes"},
        Case{"size_beyond", kRow, 1, 20, 0x0fff00000fff, 8, "outside"},
        Case{"offset_beyond", kRow, 0, 42, 0x7fffffff, 4, "outside"},
        Case{"offset_inside", kRow, 1, 42, 1, 4, "header"},
        Case{"overlap", kRow, 1, 42, 0, 4, "a different name"},
        Case{"other_name", kRow, 0, 48, 'z', 1, "a different name"},
        Case{"name_up", kRow, 0, 46, 0x2f2e2e, 3, "leads out of the folder"},
        Case{"name_absolute", kRow, 0, 46, '/', 1, "absolute"},
        Case{"name_zero", kRow, 0, 46, 0, 1, "zero byte"},
        Case{
            "zip64_missing",
            kRow,
            0,
            24,
            0xffffffff,
            4,
            "two different sizes"},
        Case{"row_signature", kRow, 1, 0, 0, 1, "damaged central directory"},
        Case{"more_rows", kEnd, 0, 8, 0x00030003, 4, "whose length differs"},
        Case{"fewer_rows", kEnd, 0, 8, 0x00010001, 4, "whose length differs"},
        Case{"parts", kEnd, 0, 4, 1, 2, "multi-part"},
        Case{"table_elsewhere", kEnd, 0, 16, 3, 4, "central directory"},
        Case{"table_longer", kEnd, 0, 12, 0xffff, 4, "central directory"},
        Case{"comment", kEnd, 0, 20, 5, 2, "central directory"}),
    [](const auto& info) { return info.param.name; });

TEST(ZipArchive, RejectsADuplicateEntry) {
  const TempFolder temp;
  AtomicFile file(temp / "a.zip");
  ZipWriter zip(file);
  zip.add("a/x", "hello");
  zip.add("a/x", "again");
  zip.finish();
  file.commit(/*durable=*/false);
  expect_error<DataError>(
      [&] { ZipArchive archive{ByteFile(temp / "a.zip")}; },
      {"'a/x'", "duplicated"});
}

TEST(ZipArchive, RejectsWrongZip64Numbers) {
  const Bytes whole = archive(/*zip64_from=*/1);
  const auto refuses = [&](size_t at, uint8_t value) {
    Bytes bytes = whole;
    bytes[at] = value;
    EXPECT_THROW(open(bytes), DataError) << at;
  };
  const size_t end64 = find(whole, "PK\x06\x06");
  const size_t locator = find(whole, "PK\x06\x07");
  for (const size_t field : {32, 40, 48}) {  // entries, size and offset
    refuses(end64 + field, 0x77);
    refuses(end64 + field + 7, 0xff);
  }
  refuses(locator + 8, 0x77);
  refuses(locator + 15, 0xff);
  const size_t extra = find(whole, kRow) + 46 + 3 + 4;
  refuses(extra, 0x77);  // the size
  refuses(extra + 7, 0xff);
  refuses(extra - 2, 0xff);  // the length of the field
}

}  // namespace
}  // namespace tern::zip_archive_test
