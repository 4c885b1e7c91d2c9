#pragma once

#include <string>
#include <string_view>

namespace tern {

/// `text` as it stands in HTML, XML and their attributes: what has a meaning
/// there is escaped, control characters and bytes that are no UTF-8 become
/// U+FFFD.
std::string html_escape(std::string_view text);

}  // namespace tern
