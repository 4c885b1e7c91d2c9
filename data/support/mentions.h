#pragma once

#include <string_view>

namespace tern {

/// True if `text` contains `words` as whole words: "sample 42" does not mention
/// "sample 4". Used for errors that name a place only if their text does not.
bool mentions(std::string_view text, std::string_view words);

}  // namespace tern
