#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tern::testing_support {

/// A parsed protocol buffer: its fields by number; numbers as 8 bytes.
struct ProtoMessage {
  explicit ProtoMessage(std::string_view bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(bytes.at(at++));
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
      }
    };
    while (at < bytes.size()) {
      const uint64_t tag = varint();
      const size_t sizes[] = {0, 8, 0, 0, 0, 4};
      std::string value;
      if ((tag & 7) == 0) {
        const uint64_t number = varint();
        value.assign(reinterpret_cast<const char*>(&number), 8);
      } else {
        const size_t size = (tag & 7) == 2 ? varint() : sizes[tag & 7];
        if (at + size > bytes.size()) throw std::runtime_error("cut");
        value = bytes.substr(at, size);
        at += size;
      }
      fields[static_cast<int>(tag >> 3)].push_back(value);
    }
  }

  bool has(int field) const { return fields.count(field); }
  std::string bytes(int field) const { return fields.at(field).at(0); }
  ProtoMessage message(int field) const { return ProtoMessage(bytes(field)); }
  template <class T>
  T number(int field) const {
    T value{};
    std::memcpy(&value, bytes(field).data(), sizeof value);
    return value;
  }
  std::vector<double> reals(int field) const {
    const std::string packed = bytes(field);
    std::vector<double> values(packed.size() / 8);
    std::memcpy(values.data(), packed.data(), packed.size());
    return values;
  }

  std::map<int, std::vector<std::string>> fields;
};

/// CRC-32C (Castagnoli), bit by bit.
inline uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
  }
  return ~crc;
}

/// The events of a file, after checking both checksums of each.
inline std::vector<ProtoMessage> read_events(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(stream), {}};
  const auto check = [&](size_t at, size_t size) {
    const uint32_t crc = crc32c(std::string_view(all).substr(at, size));
    const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    uint32_t stored = 0;
    std::memcpy(&stored, all.substr(at + size, 4).data(), 4);
    if (stored != masked) throw std::runtime_error("checksum");
  };
  std::vector<ProtoMessage> events;
  for (size_t at = 0; at < all.size();) {
    uint64_t length = 0;
    std::memcpy(&length, all.data() + at, 8);
    check(at, 8);
    check(at + 12, length);
    events.emplace_back(std::string_view(all).substr(at + 12, length));
    at += 16 + length;
  }
  return events;
}

}  // namespace tern::testing_support
