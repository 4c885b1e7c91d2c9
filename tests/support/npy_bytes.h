#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tern {

/// A .npy file of version 1 with this header, as numpy.save would write it.
inline std::vector<uint8_t> npy_bytes(
    const std::string& header,
    const std::string& values) {
  const std::string text = header + "\n";
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(text.size() & 0xff);
  file += static_cast<char>(text.size() >> 8);
  file += text + values;
  return {file.begin(), file.end()};
}

}  // namespace tern
