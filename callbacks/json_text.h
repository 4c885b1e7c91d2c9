#pragma once

#include <string>
#include <string_view>

namespace tern {

/// `text` as a JSON string, quotes and all; bytes that are not UTF-8 become
/// U+FFFD.
std::string json_string(std::string_view text);

}  // namespace tern
