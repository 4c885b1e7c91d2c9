#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tern {

/// Reads JSON (RFC 8259) piece by piece, in the order in which the caller
/// expects it, so that what a file nests cannot exhaust anything. Refused: text
/// that is not UTF-8, a key that an object has twice.
///
///   JsonReader json(text, path);
///   json.begin_object();
///   while (json.next_key(key)) { if (key == "step") step = json.integer(); }
///   json.end();
class JsonReader {
 public:
  /// Views `text`. `path` is for error messages. \throws DataError.
  JsonReader(std::string_view text, std::string path);

  /// Each throws DataError, with the byte and what was expected, if something
  /// else stands there.
  void begin_object();
  /// The next key of the object, with its colon; false at the object's end.
  bool next_key(std::string& key);
  void begin_array();
  /// Whether another element comes; false at the array's end.
  bool next_element();
  std::string string();
  /// A whole number from 0 to 2^63 - 1: no sign, fraction or exponent.
  int64_t integer();
  /// A whole number from -(2^63 - 1) to 2^63 - 1.
  int64_t signed_integer();
  /// Any number that a double can hold; NaN where `null` stands.
  double number();
  bool boolean();
  /// Nothing but white space is left.
  void end();

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  // An object or array that is open.
  struct Level {
    bool is_first = true;
    std::unordered_set<std::string> keys;
  };

  char next_char();
  void expect(char c);
  bool take(std::string_view word);
  bool next_item(char close);
  uint32_t hex4();
  void add_escape(std::string& text);

  std::string_view text_;
  std::string path_;
  size_t at_ = 0;
  std::vector<Level> levels_;
};

/// `text` as a JSON string, quoted. \param text  UTF-8.
std::string json_quoted(std::string_view text);

/// In the fewest digits that read back as the same double; `null` for what JSON
/// has no number for.
std::string json_number(double value);

}  // namespace tern
