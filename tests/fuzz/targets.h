#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tern::fuzz {

/// Runs a parser on arbitrary bytes. It must reject them with a DataError or
/// return a valid result; anything else aborts the process.
struct Target {
  std::string_view name;
  void (*run)(std::span<const uint8_t> bytes);
};

/// All targets by name.
std::span<const Target> targets();

}  // namespace tern::fuzz
