#pragma once

#include <string>
#include <string_view>

namespace tern {

/// Escapes `text` for HTML, XML and their attributes. Control characters and
/// invalid UTF-8 become U+FFFD.
std::string html_escape(std::string_view text);

/// Highlights C++ code: wraps comments, strings, numbers, keywords and
/// directives in spans of the classes c, s, n, k and p, and escapes the rest.
std::string highlight_cpp(std::string_view code);

}  // namespace tern
