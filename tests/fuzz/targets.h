#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tern::fuzz {

/// Gives any bytes to a parser, which has to refuse them with a DataError or
/// give a result that keeps its promises; anything else ends the process.
struct Target {
  std::string_view name;
  void (*run)(std::span<const uint8_t> bytes);
};

/// All of them, by name.
std::span<const Target> targets();

}  // namespace tern::fuzz
