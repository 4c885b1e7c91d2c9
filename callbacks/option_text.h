#pragma once

#include <chrono>
#include <concepts>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

/// Formats option values for reports. Private to callbacks/.
namespace tern {

inline std::string option_text(bool value) {
  return value ? "true" : "false";
}
template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
std::string option_text(Number value) {
  return fmt::format("{}", value);
}
inline std::string option_text(const std::string& value) {
  return '"' + value + '"';
}
inline std::string option_text(const std::filesystem::path& value) {
  return option_text(value.string());
}
inline std::string option_text(std::chrono::seconds value) {
  return fmt::format("{} s", value.count());
}
inline std::string option_text(c10::ScalarType value) {
  return c10::toString(value);
}
template <class T>
std::string option_text(const std::optional<T>& value) {
  return value ? option_text(*value) : "unset";
}
template <class T>
std::string option_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    text += (text.empty() ? "" : ", ") + option_text(value);
  }
  return "{" + text + "}";
}

}  // namespace tern
