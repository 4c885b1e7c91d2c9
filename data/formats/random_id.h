#pragma once

#include <string>

namespace tern {

/// 16 hexadecimal digits from the system's source of randomness: a name that
/// nobody else has.
std::string random_id();

}  // namespace tern
