#pragma once

#include <string>
#include <string_view>

namespace tern {

/// Escapes `text` for HTML, XML and their attributes; control characters and
/// bytes that are not UTF-8 become U+FFFD.
std::string html_escape(std::string_view text);

/// Marks comments, strings, numbers, keywords and directives of C++ with spans
/// of the classes c, s, n, k and p; the rest is escaped.
std::string highlight_cpp(std::string_view code);

}  // namespace tern
