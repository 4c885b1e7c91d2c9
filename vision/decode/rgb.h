#pragma once

#include <array>
#include <cstdint>

namespace tern {

/// Red, green, blue.
using Rgb = std::array<uint8_t, 3>;

inline constexpr Rgb kTextColor = {34, 34, 34}, kRightColor = {0, 120, 60},
                     kWrongColor = {200, 30, 30};

}  // namespace tern
