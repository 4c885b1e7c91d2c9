#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tern {

/// A name from a file in quotes, fit for a terminal: control characters and
/// bytes that are not UTF-8 are spelt out as \xNN, and what is beyond 200 bytes
/// is left out.
std::string printable(std::string_view name);

/// Why an archive may not hold a file of this name, such as "has an absolute
/// name"; null if it may: a relative name that stays in its folder.
const char* member_name_fault(std::string_view name);

/// Whether `text` is UTF-8: no overlong form, no surrogate, none above
/// U+10FFFF.
bool is_utf8(std::string_view text);

/// Bytes of the character that `text` begins with; 0 if it is not UTF-8.
size_t utf8_length(std::string_view text);

/// `text` without the spaces, tabs and line breaks around it.
std::string_view trimmed(std::string_view text);

/// The number that `text` consists of, in decimal digits and with spaces around
/// it at most, or "nan" or "inf"; unset if it is none or no double can hold it.
std::optional<double> parse_number(std::string_view text);

/// "c3a9": two lower-case hexadecimal digits for each byte.
std::string hex_digits(std::string_view bytes);

}  // namespace tern
