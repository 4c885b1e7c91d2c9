#include "tern/data/formats/crc32.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tern::crc32_test {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Crc32, HasThePublishedValues) {
  EXPECT_EQ(crc32({}), 0u);
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926u);  // the check value
  EXPECT_EQ(
      crc32(bytes_of("The quick brown fox jumps over the lazy dog")),
      0x414FA339u);
}

TEST(Crc32, IsTheSameInPieces) {
  std::vector<uint8_t> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * i / 7);
  }
  for (size_t cut = 0; cut <= bytes.size(); cut += 13) {
    const auto all = std::span<const uint8_t>(bytes);
    EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), crc32(all));
  }
}

}  // namespace
}  // namespace tern::crc32_test
