#pragma once

#include <string_view>

namespace tern {

/// True if `text` contains `words` as whole words: "sample 42" does not mention
/// "sample 4". Used to add a location to an error message only if the message
/// does not already name it.
bool mentions(std::string_view text, std::string_view words);

}  // namespace tern
