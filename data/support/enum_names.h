#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern {

/// The values of an enum with the names used in files.
template <class Enum, size_t N>
using EnumNames = std::array<std::pair<const char*, Enum>, N>;

template <class Enum, size_t N>
std::string name_of(const EnumNames<Enum, N>& names, Enum value) {
  const auto at = std::ranges::find(names, value, [](const auto& item) {
    return item.second;
  });
  return at == names.end() ? "unknown" : at->first;
}

/// Returns the enum value with this name.
/// \param what  Beginning of the error message, "[call] there is no mode".
/// \throws c10::ValueError that lists the valid names.
template <class Enum, size_t N>
Enum value_of(
    const EnumNames<Enum, N>& names,
    const std::string& name,
    const char* what) {
  std::vector<std::string> known;
  for (const auto& [other, value] : names) {
    if (name == other) return value;
    known.emplace_back(other);
  }
  throw c10::ValueError(
      {__func__, __FILE__, __LINE__},
      fmt::format(
          "{} \"{}\"; expected one of {}.",
          what,
          name,
          fmt::join(known, ", ")));
}

}  // namespace tern
