#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

namespace tern::examples {

/// Command-line options of an example program, based on CLI11. Each number has
/// a range, and --help shows the defaults.
///
///   Options options("Trains on MNIST");
///   options.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
///   options.read(argc, argv);
class Options : public CLI::App {
 public:
  /// \param description  One line; --help begins with it.
  explicit Options(const std::string& description);

  /// Adds an option that accepts a number from `low` to `high`.
  template <class T>
  CLI::Option* add_number(
      const std::string& name,
      T& value,
      std::type_identity_t<T> low,
      std::type_identity_t<T> high,
      const std::string& description = "") {
    using Number =
        std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
    return add_option(name, value, description)
        ->check(in_range(static_cast<Number>(low), static_cast<Number>(high)));
  }

  /// Adds an option that accepts one of `choices`.
  template <class T>
  CLI::Option* add_choice(
      const std::string& name,
      T& value,
      const std::vector<std::string>& choices,
      const std::string& description = "") {
    return add_option(name, value, description)->check(one_of(choices));
  }

  /// Sets the variables from the arguments. Exits after --help. If an argument
  /// is invalid, prints a message and exits with a code other than 0.
  void read(int argc, const char* const* argv);

 private:
  static CLI::Validator in_range(int64_t low, int64_t high);
  static CLI::Validator in_range(double low, double high);
  static CLI::Validator one_of(const std::vector<std::string>& choices);
};

}  // namespace tern::examples
