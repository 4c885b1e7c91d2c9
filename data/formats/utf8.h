#pragma once

#include <string_view>

namespace tern {

/// Whether `text` is UTF-8: no overlong form, no surrogate, none above
/// U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace tern
