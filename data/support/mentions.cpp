#include "tern/data/support/mentions.h"

#include <cctype>

namespace tern {

bool mentions(std::string_view text, std::string_view words) {
  if (words.empty()) return false;
  const auto is_of_word = [&](size_t at) {
    const auto letter = static_cast<unsigned char>(text[at]);
    return letter == '_' || std::isalnum(letter) != 0;
  };
  for (size_t at = text.find(words); at != text.npos;
       at = text.find(words, at + 1)) {
    const size_t end = at + words.size();
    const bool begins = at == 0 || !is_of_word(at - 1) || !is_of_word(at);
    const bool ends =
        end == text.size() || !is_of_word(end) || !is_of_word(end - 1);
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace tern
