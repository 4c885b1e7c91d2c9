#pragma once

#include <string>
#include <string_view>

namespace tern {

/// A name from a file in quotes, fit for a terminal: control characters are
/// spelt out, and what is beyond 200 bytes is left out.
std::string printable(std::string_view name);

/// Why an archive may not hold a file of this name, such as "has an absolute
/// name"; null if it may: a relative name that stays in its folder.
const char* member_name_fault(std::string_view name);

}  // namespace tern
