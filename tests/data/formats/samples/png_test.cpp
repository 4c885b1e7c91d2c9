#include "tern/data/formats/samples/png.h"

#include <numeric>
#include <stdexcept>
#include <vector>
#include <zlib.h>

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"

namespace tern::png_test {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(PngWrite, StoresTheRowsUnfiltered) {
  for (const int64_t channels : {1, 3}) {
    Bytes pixels(5 * 7 * channels);
    std::iota(pixels.begin(), pixels.end(), 0);
    const Bytes png = encode_png(pixels, 7, 5, channels);

    // After the signature and an IHDR of 13 bytes comes the length of IDAT.
    ASSERT_GT(png.size(), 57u);
    EXPECT_EQ(png[19], 7);
    EXPECT_EQ(png[23], 5);
    EXPECT_EQ(png[24], 8);
    EXPECT_EQ(png[25], channels == 1 ? 0 : 2);
    EXPECT_EQ(
        Bytes(png.begin() + 37, png.begin() + 41),
        (Bytes{73, 68, 65, 84}));
    const uLong packed_size = png[35] << 8 | png[36];
    Bytes rows(5 * (7 * channels + 1));
    uLongf size = rows.size();
    ASSERT_EQ(
        uncompress(rows.data(), &size, png.data() + 41, packed_size),
        Z_OK);
    ASSERT_EQ(size, rows.size());
    for (int64_t y = 0; y < 5; ++y) {
      const auto row = rows.begin() + y * (7 * channels + 1);
      EXPECT_EQ(*row, 0);
      EXPECT_TRUE(std::equal(
          row + 1,
          row + 1 + 7 * channels,
          pixels.begin() + y * 7 * channels));
    }
    EXPECT_EQ(
        Bytes(png.end() - 8, png.end()),
        (Bytes{'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82}));
  }
}

TEST(PngWrite, RejectsSizesThatDoNotMatch) {
  const Bytes pixels(12);
  expect_error<std::invalid_argument>(
      [&] { encode_png(pixels, 3, 3, 1); },
      {"got 12 bytes"});
  expect_error<std::invalid_argument>(
      [&] { encode_png(pixels, 3, 2, 2); },
      {"channels 2"});
  expect_error<std::invalid_argument>(
      [&] { encode_png(pixels, -3, -4, 1); },
      {"width -3"});
}

}  // namespace
}  // namespace tern::png_test
