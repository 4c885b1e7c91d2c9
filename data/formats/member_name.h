#pragma once

#include <string_view>

namespace tern {

/// Why an archive may not hold a file of this name, such as "has an absolute
/// name"; null if it may: a relative name that stays in its folder.
const char* member_name_fault(std::string_view name);

}  // namespace tern
