#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tern {

/// Writes tar archives byte by byte, including ones that no tar program writes.
///
///   TarBytes tar;
///   tar.add("a/b.txt", "hello").finish();
///   write_file(temp / "a.tar", tar.bytes);
struct TarBytes {
  std::vector<uint8_t> bytes;

  /// \param type  '0' file, '1' hard link, '2' symbolic link, '3' device,
  ///              '5' folder, '6' pipe.
  TarBytes& add(
      const std::string& name,
      const std::string& content,
      char type = '0',
      const std::string& link = "") {
    char header[512] = {};
    std::snprintf(header, 100, "%s", name.c_str());
    std::memcpy(header + 100, "0000644", 8);
    std::memcpy(header + 108, "0000000", 8);
    std::memcpy(header + 116, "0000000", 8);
    std::snprintf(header + 124, 12, "%011zo", content.size());
    std::memcpy(header + 136, "00000000000", 12);
    header[156] = type;
    std::snprintf(header + 157, 100, "%s", link.c_str());
    std::memcpy(header + 257, "ustar\00000", 8);
    return add_raw(header, content);
  }

  /// Pax records such as {"path", "a.txt"} for the next entry.
  TarBytes& add_pax(
      const std::vector<std::pair<std::string, std::string>>& records) {
    std::string text;
    for (const auto& [key, value] : records) {
      const std::string record = " " + key + "=" + value + "\n";
      // The length includes its own digits.
      size_t length = record.size() + 1;
      while (record.size() + std::to_string(length).size() > length) ++length;
      text += std::to_string(length) + record;
    }
    return add("PaxHeaders/x", text, 'x');
  }

  /// A header of 512 bytes, with its checksum filled in, and its content.
  TarBytes& add_raw(char* header, const std::string& content) {
    std::memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; ++i) sum += static_cast<uint8_t>(header[i]);
    std::snprintf(header + 148, 8, "%06o", sum);
    bytes.insert(bytes.end(), header, header + 512);
    bytes.insert(bytes.end(), content.begin(), content.end());
    bytes.resize((bytes.size() + 511) / 512 * 512);
    return *this;
  }

  /// The two empty blocks that end an archive.
  TarBytes& finish() {
    bytes.resize(bytes.size() + 1024);
    return *this;
  }
};

}  // namespace tern
