#pragma once

#include <string_view>

namespace tern {

/// Whether a text has `words` in it, which do not begin or end within a longer
/// word: "sample 42" does not mention "sample 4". For errors, which name a place
/// only if their text does not.
bool mentions(std::string_view text, std::string_view words);

}  // namespace tern
