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

/// Reads JSON (RFC 8259) piece by piece, in the order in which the caller
/// expects it.
///
///   JsonReader json(text, path);
///   json.begin_object();
///   while (json.next_key(key)) { if (key == "step") step = json.integer(); }
///   json.end();
///
/// Each call throws DataError, with the byte and the keys that lead there, if
/// the text continues with something else than the call reads. Refused as well:
/// text that is not UTF-8, a key that an object has twice, more than 64 levels
/// of objects and arrays, and more than 2,000,000 tokens (brackets, keys and
/// other values).
class JsonReader {
 public:
  /// Copies the text.
  /// \param path  For error messages.
  JsonReader(std::string_view text, std::string path);

  void begin_object() { open('{'); }
  /// The next key of the object; false at the object's end.
  bool next_key(std::string& key);
  void begin_array() { open('['); }
  /// Whether another element comes; false at the array's end.
  bool next_element() { return next_item(']'); }
  std::string string();
  /// A whole number from -2^63 to 2^63 - 1: no fraction or exponent.
  int64_t integer();
  /// Any number that a double can hold; NaN for `null`.
  double number();
  bool boolean();
  /// Nothing but white space is left.
  void end();

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  /// An object or array that is open.
  struct Level {
    std::unordered_set<std::string> keys = {};  // so far; of an object
    std::string key = {};                       // whose value is read
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

/// `text` as a JSON string, quoted; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// In the fewest digits that read back as the same double; `null` for what JSON
/// has no number for.
std::string json_number(double value);

/// The address of a field of a struct.
using JsonField = std::variant<
    bool*,
    int64_t*,
    double*,
    std::optional<double>*,
    std::string*,
    std::vector<int64_t>*,
    std::vector<double>*,
    std::vector<std::string>*>;

/// The fields of a struct by name, listed once to be both written and read:
///
///   JsonFields fields_of(ResNetOptions& options) {
///     return {{"num_classes", &options.num_classes},
///             {"zero_init_residual", &options.zero_init_residual}};
///   }
using JsonFields = std::vector<std::pair<std::string, JsonField>>;

/// {"num_classes": 10, "zero_init_residual": false}
std::string to_json(const JsonFields& fields);

/// Reads an object into the fields; a field that it does not name keeps its
/// value.
/// \param where  For error messages, such as a file.
/// \throws DataError for a name that is no field, or a value that is not of the
///         field's type; some fields may then have been read.
void read_json(
    std::string_view text,
    const JsonFields& fields,
    const std::string& where);
/// The same for the reader's next object, such as one within another.
void read_json(JsonReader& json, const JsonFields& fields);

}  // namespace tern
