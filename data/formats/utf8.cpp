#include "tern/data/formats/utf8.h"

#include <cstddef>
#include <cstdint>

namespace tern {

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const size_t more = first < 0x80   ? 0
                        : first < 0xc2 ? 4  // the middle of a character
                        : first < 0xe0 ? 1
                        : first < 0xf0 ? 2
                        : first < 0xf5 ? 3
                                       : 4;
    if (more == 4 || text.size() - i <= more) return false;
    uint32_t code = more == 0 ? first : first & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if ((byte & 0xc0) != 0x80) return false;
      code = code << 6 | (byte & 0x3f);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && code < 0x10000) ||
        (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) {
      return false;
    }
    i += 1 + more;
  }
  return true;
}

}  // namespace tern
