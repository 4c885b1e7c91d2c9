#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace tern {

/// Reads JSON (RFC 8259) token by token, in the order that the caller expects.
///
///   JsonReader json(text, path);
///   json.begin_object();
///   while (json.next_key(key)) { if (key == "step") step = json.integer(); }
///   json.end();
///
/// Each call throws DataError, with the position in bytes and the enclosing
/// keys, if the next token is not of the kind that the call reads. Also rejects
/// text that is not UTF-8, a duplicate key in an object, more than 64 levels of
/// objects and arrays, and more than 2,000,000 tokens (brackets, keys and other
/// values).
class JsonReader {
 public:
  /// Copies the text.
  /// \param path  For error messages.
  JsonReader(std::string_view text, std::string path);

  void begin_object() { open('{'); }
  /// Reads the next key of the object; returns false at its end.
  bool next_key(std::string& key);
  void begin_array() { open('['); }
  /// Returns true if another element follows, false at the end of the array.
  bool next_element() { return next_item(']'); }
  std::string string();
  /// Reads an integer from -2^63 to 2^63 - 1, without fraction or exponent.
  int64_t integer();
  /// Reads a number in the range of double; NaN for `null`.
  double number();
  bool boolean();
  /// If the next value is null, reads it and returns true.
  bool is_null();
  /// Checks that only white space follows.
  void end();

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  /// An open object or array.
  struct Level {
    std::unordered_set<std::string> keys = {};  // of an object, so far
    std::string key = {};                       // of the value being read
    bool is_empty = true;
  };

  char next();
  void pass(char mark);
  void pass_token(size_t bytes);
  void open(char bracket);
  bool next_item(char closing_bracket);
  std::string_view next_scalar();

  std::string text_, path_;
  size_t at_ = 0, tokens_ = 0;
  std::vector<Level> levels_;
};

/// Returns `text` as a quoted JSON string; invalid UTF-8 becomes U+FFFD.
std::string json_quoted(std::string_view text);

/// Formats a number with the fewest digits that read back as the same double;
/// `null` for NaN and infinities.
std::string json_number(double value);

/// Address of a field of a struct.
using JsonField = std::variant<
    bool*,
    int64_t*,
    double*,
    std::optional<double>*,
    std::string*,
    std::vector<int64_t>*,
    std::vector<double>*,
    std::vector<std::string>*>;

/// The fields of a struct by name, listed once for writing and reading:
///
///   JsonFields fields_of(ResNetOptions& options) {
///     return {{"num_classes", &options.num_classes},
///             {"zero_init_residual", &options.zero_init_residual}};
///   }
using JsonFields = std::vector<std::pair<std::string, JsonField>>;

/// {"num_classes": 10, "zero_init_residual": false}
std::string to_json(const JsonFields& fields);

/// Reads an object into the fields. Fields that it does not contain keep their
/// values.
/// \param where  For error messages, such as a file.
/// \throws DataError for an unknown name or a value of the wrong type; some
///         fields may then have changed.
void read_json(
    std::string_view text,
    const JsonFields& fields,
    const std::string& where);
/// The same for the reader's next object, for example a nested one.
void read_json(JsonReader& json, const JsonFields& fields);

}  // namespace tern
