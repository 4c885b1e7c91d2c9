#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tern {

/// Quotes a name that was read from a file, to print it on a terminal: control
/// characters and invalid UTF-8 become \xNN, and the name is truncated to 200
/// bytes.
std::string printable(std::string_view name);

/// Returns why an archive must not contain a file of this name, such as "has an
/// absolute name"; null if the name is relative and stays in its folder.
const char* member_name_fault(std::string_view name);

/// True if `text` is valid UTF-8: no overlong form, no surrogate, nothing above
/// U+10FFFF.
bool is_utf8(std::string_view text);

/// Returns the length in bytes of the first character of `text`; 0 if it is not
/// UTF-8.
size_t utf8_length(std::string_view text);

/// Returns `text` without leading and trailing spaces, tabs and line breaks.
std::string_view trimmed(std::string_view text);

/// Parses `text` as a decimal number, "nan" or "inf", with optional spaces
/// around it. Returns nullopt for any other text, or for a number outside the
/// range of double.
std::optional<double> parse_number(std::string_view text);

/// Returns two lower-case hexadecimal digits for each byte, such as "c3a9".
std::string hex_digits(std::string_view bytes);

}  // namespace tern
