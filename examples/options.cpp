#include "options.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern::examples {

namespace {

template <class T>
CLI::Validator range(T low, T high, const char* kind) {
  const auto check = [=](const std::string& text) -> std::string {
    T value{};
    // NaN and infinity are outside every range.
    if (CLI::detail::lexical_cast(text, value) && value >= low &&
        value <= high) {
      return "";
    }
    return fmt::format(
        "{} was given; expected a {} from {} to {}.",
        text,
        kind,
        low,
        high);
  };
  return {check, fmt::format("{}..{}", low, high)};
}

}  // namespace

Options::Options(const std::string& description) : CLI::App(description) {
  option_defaults()->always_capture_default();
}

void Options::read(int argc, const char* const* argv) {
  try {
    parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(exit(error));
  }
}

CLI::Validator Options::in_range(int64_t low, int64_t high) {
  return range(low, high, "whole number");
}

CLI::Validator Options::in_range(double low, double high) {
  return range(low, high, "number");
}

CLI::Validator Options::one_of(const std::vector<std::string>& choices) {
  const auto check = [=](const std::string& text) -> std::string {
    if (std::ranges::find(choices, text) != choices.end()) return "";
    return fmt::format(
        "{} was given; expected one of {}.",
        text,
        fmt::join(choices, ", "));
  };
  return {check, fmt::format("{}", fmt::join(choices, "|"))};
}

}  // namespace tern::examples
