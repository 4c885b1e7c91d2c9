#include "tern/data/formats/printable.h"

namespace tern {

std::string printable(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      text += c;
    }
  }
  return text + (name.size() > 200 ? "...'" : "'");
}

}  // namespace tern
