#pragma once

#include <cstdio>
#include <random>
#include <string>

namespace tern {

/// 16 hexadecimal digits from the system's source of randomness: a name that
/// nobody else has.
inline std::string random_id() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

}  // namespace tern
