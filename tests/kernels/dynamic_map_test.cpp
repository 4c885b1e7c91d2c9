#include "tern/kernels/optim/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace tern::test::dynamic_map_test {
namespace {

/// As in bitsandbytes' create_dynamic_map.
std::vector<double> map_of_bitsandbytes(bool is_signed) {
  std::vector<double> map = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int values = 1 << (is_signed ? i : i + 1);
    for (int j = 0; j < values; ++j) {
      const double mean = 0.1 + 0.9 * (j + 0.5) / values;
      map.push_back(std::pow(10, i - 6) * mean);
      if (is_signed) map.push_back(-map.back());
    }
  }
  std::ranges::sort(map);
  return map;
}

class DynamicMap : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(
    Signed,
    DynamicMap,
    testing::Bool(),
    [](const auto& info) { return info.param ? "signed" : "unsigned"; });

TEST_P(DynamicMap, EqualsTheMapOfBitsandbytes) {
  const auto map = map_of_bitsandbytes(GetParam());
  ASSERT_EQ(map.size(), 256u);
  for (int code = 0; code < 256; ++code) {
    const double value = decode_8bit(code, GetParam());
    EXPECT_NEAR(value, map[code], std::abs(map[code]) * 1e-6) << code;
  }
}

TEST_P(DynamicMap, KeepsEveryValueOfTheMap) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(encode_8bit(decode_8bit(code, GetParam()), GetParam()), code);
  }
}

TEST_P(DynamicMap, RoundsToTheNearestValue) {
  const auto map = map_of_bitsandbytes(GetParam());
  for (double size = 1e-9; size <= 1; size *= 1.0007) {
    for (const double sign : {1.0, -1.0}) {
      const double value = sign * size;
      if (!GetParam() && (value < 0 || value < map[1])) continue;
      const auto above = std::ranges::lower_bound(map, value);
      double least = 2;
      if (above != map.end()) least = *above - value;
      if (above != map.begin()) least = std::min(least, value - above[-1]);
      const int32_t code = encode_8bit(static_cast<float>(value), GetParam());
      EXPECT_LE(std::abs(map[code] - value), least + 1e-6 * size) << value;
    }
  }
}

TEST_P(DynamicMap, EncodesLargerValuesAsTheLargest) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {1.f, 2.f, infinity, NAN}) {
    EXPECT_EQ(encode_8bit(value, GetParam()), 255);
  }
  EXPECT_EQ(encode_8bit(0, GetParam()), GetParam() ? 127 : 0);
  EXPECT_EQ(encode_8bit(-0.f, GetParam()), GetParam() ? 127 : 0);
}

// The second moment is a divisor.
TEST(DynamicMapOfSquares, RoundsNothingButZeroToZero) {
  for (const float value : {1e-30f, 1e-10f, 1e-7f, 2e-7f}) {
    EXPECT_EQ(encode_8bit(value, false), 1);
    EXPECT_EQ(encode_8bit(value, true), 127);
  }
}

}  // namespace
}  // namespace tern::test::dynamic_map_test
