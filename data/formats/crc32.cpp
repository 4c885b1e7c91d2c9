#include "tern/data/formats/crc32.h"

#include <array>
#include <cstddef>

#include "tern/data/formats/load_bytes.h"

namespace tern {

namespace {

constexpr size_t kSlices = 16;  // bytes looked up at once

using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// tables[k][b]: what byte b does to the checksum k bytes later.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// The four bytes of `word`, of which the last is `k` bytes from the end.
uint32_t look_up(uint32_t word, size_t k) {
  return kTables[k + 3][word & 0xff] ^ kTables[k + 2][word >> 8 & 0xff] ^
         kTables[k + 1][word >> 16 & 0xff] ^ kTables[k][word >> 24];
}

}  // namespace

uint32_t crc32(std::span<const uint8_t> bytes, uint32_t before) {
  uint32_t crc = ~before;
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kSlices; left -= kSlices, at += kSlices) {
    crc = look_up(load_le32(at) ^ crc, 12) ^ look_up(load_le32(at + 4), 8) ^
          look_up(load_le32(at + 8), 4) ^ look_up(load_le32(at + 12), 0);
  }
  for (; left > 0; --left, ++at) {
    crc = crc >> 8 ^ kTables[0][(crc ^ *at) & 0xff];
  }
  return ~crc;
}

}  // namespace tern
