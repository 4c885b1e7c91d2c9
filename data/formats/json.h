#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tern {

/// Reads JSON (RFC 8259) piece by piece, in the order in which the caller
/// expects it. Refused: text that is not UTF-8, a key that an object has twice,
/// more than 64 levels.
///
///   JsonReader json(text, path);
///   json.begin_object();
///   while (json.next_key(key)) { if (key == "step") step = json.integer(); }
///   json.end();
class JsonReader {
 public:
  /// Parses `text`. `path` is for error messages. Damage is reported by the
  /// call that comes upon it.
  JsonReader(std::string_view text, std::string path);

  /// Each throws DataError, with the keys that lead there and what was
  /// expected, if something else stands there.
  void begin_object();
  /// The next key of the object; false at the object's end.
  bool next_key(std::string& key);
  void begin_array() { step_over('['); }
  /// Whether another element comes; false at the array's end.
  bool next_element();
  std::string string();
  /// A whole number from -2^63 to 2^63 - 1: no fraction or exponent.
  int64_t integer();
  /// Any number that a double can hold; NaN where `null` stands.
  double number();
  bool boolean();
  /// Nothing but white space is left.
  void end();

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  struct Token;
  class Parser;

  const Token& next() const;
  void step_over(char kind);

  std::shared_ptr<const std::vector<Token>> tokens_;
  std::string path_;
  size_t at_ = 0;
  std::vector<std::string> keys_;  // of the objects that are open
};

/// `text` as a JSON string, quoted; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// In the fewest digits that read back as the same double; `null` for what JSON
/// has no number for.
std::string json_number(double value);

/// Where a field of a struct lies.
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

/// Reads an object into the fields; one that it has not stays as it is.
/// \param where  For error messages, such as a file.
/// \throws DataError for a name that is no field, or a value that is not of the
///         field's type; some fields may then have been read.
void read_json(
    std::string_view text,
    const JsonFields& fields,
    const std::string& where);
/// The same of the object that stands next, such as one in another.
void read_json(JsonReader& json, const JsonFields& fields);

}  // namespace tern
