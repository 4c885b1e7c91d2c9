#include "tern/data/formats/archives/gzip.h"

#include <string>
#include <vector>
#include <zlib.h>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gzip_bytes.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::gzip_test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes some_text(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = "some text, "[i * i / 3 % 11];
  return bytes;
}

Bytes unzipped(const Bytes& bytes) {
  return gunzip(ByteFile(bytes, "a.gz"));
}

TEST(Gzip, RestoresCompressedBytes) {
  for (const size_t size : {0, 1, 1000, 1'000'000}) {
    const Bytes text = some_text(size);
    EXPECT_EQ(unzipped(gzip_bytes(text)), text) << size;
  }
}

TEST(Gzip, ReturnsUncompressedBytesUnchanged) {
  for (const Bytes& bytes : {Bytes{}, Bytes{0x1f}, Bytes{1, 2, 3}}) {
    EXPECT_EQ(gunzip(ByteFile(bytes, "a")), bytes);
  }
}

TEST(Gzip, ReadsSeveralMembersAndTapePaddingAsOneStream) {
  const Bytes text = some_text(100);
  Bytes two = gzip_bytes(text);
  const Bytes one = two;
  two.insert(two.end(), one.begin(), one.end());
  two.insert(two.end(), 300'000, 0);
  Bytes expected = text;
  expected.insert(expected.end(), text.begin(), text.end());
  EXPECT_EQ(gunzip(ByteFile(two, "a.gz")), expected);
}

TEST(Gzip, RejectsEveryTruncation) {
  const Bytes whole = gzip_bytes(some_text(500));
  for (size_t size = 2; size < whole.size(); ++size) {
    const std::span<const uint8_t> cut = std::span(whole).first(size);
    expect_error<DataError>(
        [&] { gunzip(ByteFile(cut, "a.gz")); },
        {"truncated"});
  }
}

TEST(Gzip, NeverReturnsWrongBytesAfterOneFlippedBit) {
  const Bytes text = some_text(500);
  const Bytes whole = gzip_bytes(text);
  int refused = 0;
  for (size_t bit = 16; bit < 8 * whole.size(); ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    try {
      // Flipped bits in the time of the header and in a few padding bits have
      // no effect.
      EXPECT_EQ(gunzip(ByteFile(flipped, "a.gz")), text) << "bit " << bit;
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(8 * whole.size()) - 100);
}

TEST(Gzip, RejectsBytesAfterTheStream) {
  Bytes bytes = gzip_bytes(some_text(10));
  bytes.push_back('x');
  expect_error<DataError>(
      [&] { gunzip(ByteFile(bytes, "a.gz")); },
      {"not gzip"});
}

TEST(Gzip, StopsAtTheLargestSizeAllowed) {
  const Bytes bytes = gzip_bytes(some_text(1000));
  EXPECT_EQ(gunzip(ByteFile(bytes, "a.gz"), 1000).size(), 1000u);
  expect_error<DataError>(
      [&] { gunzip(ByteFile(bytes, "a"), 999); },
      {"more than the limit of 999"});
}

TEST(Gzip, RejectsADecompressionBomb) {
  const TempFolder temp;
  write_file(temp / "bomb.gz", gzip_bytes(Bytes(65 << 20, 0)));
  GzipReader reader(ByteFile(temp / "bomb.gz"));
  Bytes buffer(1 << 16);
  const auto read_all = [&] {
    while (reader.read(buffer) > 0) {
    }
  };
  expect_error<DataError>([&] { read_all(); }, {"decompression bomb"});
}

TEST(Gzip, NamesTheFileInItsErrors) {
  const TempFolder temp;
  Bytes bytes = gzip_bytes(some_text(1000));
  bytes.resize(50);
  write_file(temp / "cut.gz", bytes);
  expect_error<DataError>(
      [&] { gunzip(ByteFile(temp / "cut.gz")); },
      {"cut.gz: ends"});
}

}  // namespace
}  // namespace tern::gzip_test
