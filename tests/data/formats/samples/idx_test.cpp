#include "tern/data/formats/samples/idx.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gzip_bytes.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/test_data.h"

namespace tern::idx_test {
namespace {

using Bytes = std::vector<uint8_t>;

// [2, 3]: 0 1 2 / 3 4 5
Bytes small_idx() {
  return {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1, 2, 3, 4, 5};
}

TEST(Idx, ReadsShapeAndValues) {
  const Bytes bytes = small_idx();
  const IdxArray array = parse_idx(bytes, "a");
  EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(
      Bytes(array.values.begin(), array.values.end()),
      (Bytes{0, 1, 2, 3, 4, 5}));
}

TEST(Idx, AcceptsAnArrayWithoutValues) {
  const Bytes bytes{0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 28};
  EXPECT_EQ(parse_idx(bytes, "a").dims, (std::vector<int64_t>{0, 28}));
  EXPECT_TRUE(parse_idx(bytes, "a").values.empty());
}

struct BadCase {
  const char* words;
  Bytes bytes;
};

TEST(Idx, RejectsFilesThatAreNotIdxFilesOfBytes) {
  const std::vector<BadCase> cases = {
      {"is empty; expected 000008", {}},
      {"begins with the bytes 89504e47", {0x89, 'P', 'N', 'G', 1, 2}},
      {"00000d01; expected 000008", {0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0}},
      {"00000901", {0, 0, 9, 1, 0, 0, 0, 1, 0}},
      {"00000701", {0, 0, 7, 1, 0, 0, 0, 1, 0}},
      {"00000800", {0, 0, 8, 0, 1}},
      {"expected a header of 1024", {0, 0, 8, 255, 0, 0, 0, 1}},
      {"expects 1", {0, 0, 8, 1, 0, 0, 0, 1, 5, 5}},
      {"more than 2^40",
       {0,
        0,
        8,
        3,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff}},
      // 2^31 twice, and a zero that would hide the overflow.
      {"more than 2^40",
       {0, 0, 8, 3, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0}},
  };
  for (const BadCase& c : cases) {
    expect_error<DataError>([&] { parse_idx(c.bytes, "a"); }, {c.words});
    expect_error<DataError>([&] { parse_idx(c.bytes, "a"); }, {"a: "});
  }
}

TEST(Idx, RejectsEveryTruncation) {
  const Bytes whole = small_idx();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse_idx(std::span(whole).first(size), "a"), DataError)
        << size << " bytes";
  }
}

TEST(Idx, RejectsEveryFlippedBitOfTheHeader) {
  const Bytes whole = small_idx();
  for (size_t bit = 0; bit < 8 * 12; ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_THROW(parse_idx(flipped, "a"), DataError) << "bit " << bit;
  }
}

TEST(Idx, ReadsFilesWithAndWithoutGzip) {
  const TempFolder temp;
  write_file(temp / "plain", small_idx());
  write_file(temp / "packed.gz", gzip_bytes(small_idx()));
  for (const char* name : {"plain", "packed.gz"}) {
    const IdxFile file = read_idx(temp / name);
    EXPECT_EQ(file.array.dims, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(file.array.values[5], 5);
  }
}

TEST(Idx, StopsDecompressingAtTheLargestSizeAllowed) {
  const TempFolder temp;
  write_file(temp / "big.gz", gzip_bytes(Bytes(1 << 20, 0)));
  expect_error<DataError>(
      [&] { read_idx(temp / "big.gz", 1000); },
      {"big.gz: inflates to more"});
}

TEST(Idx, ReadsMnist) {
  TERN_REQUIRE_DATA(data);
  const IdxFile images = read_idx(data / "mnist/t10k-images-idx3-ubyte.gz");
  EXPECT_EQ(images.array.dims, (std::vector<int64_t>{10000, 28, 28}));
  const IdxFile labels = read_idx(data / "mnist/t10k-labels-idx1-ubyte.gz");
  ASSERT_EQ(labels.array.dims, (std::vector<int64_t>{10000}));
  EXPECT_EQ(labels.array.values[0], 7);
}

}  // namespace
}  // namespace tern::idx_test
