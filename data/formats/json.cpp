#include "tern/data/formats/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLevels = 64;
// Of 16 MB, which a header may have, 2 bytes a value would become 300 MB.
constexpr size_t kMaxTokens = 2'000'000;

}  // namespace

// '{', '}', '[' and ']' as they stand, 'k' for a key, 'v' for another value,
// '.' for the end of the text and '!' for what is wrong from there on.
struct JsonReader::Token {
  char kind;
  Json value;  // or the text of a key or a fault
};

// nlohmann-json's parser calls this, and stops where it gets false.
class JsonReader::Parser final : public nlohmann::json_sax<Json> {
 public:
  std::vector<Token> tokens;

  bool add(char kind, Json value = Json::value_t::discarded) {
    if (tokens.size() == kMaxTokens) {
      kind = '!';
      value = "has more than two million values";
    }
    tokens.push_back({kind, std::move(value)});
    return kind != '!';
  }

  bool null() override { return add('v', nullptr); }
  bool boolean(bool value) override { return add('v', value); }
  bool number_integer(int64_t value) override { return add('v', value); }
  bool number_unsigned(uint64_t value) override { return add('v', value); }
  bool number_float(double value, const std::string&) override {
    return add('v', value);
  }
  bool string(std::string& text) override { return add('v', text); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return open('{'); }
  bool key(std::string& text) override {
    return keys_.back().insert(text).second
               ? add('k', text)
               : add('!', "has the key " + printable(text) + " twice");
  }
  bool end_object() override { return close('}'); }
  bool start_array(size_t) override { return open('['); }
  bool end_array() override { return close(']'); }
  bool parse_error(
      size_t byte,
      const std::string&,
      const Json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    return add(
        '!',
        error.id == kNumberOverflow
            ? "has a number that is larger than a double can hold"
            : "is damaged at byte " + std::to_string(byte));
  }

 private:
  bool open(char kind) {
    keys_.emplace_back();
    return keys_.size() <= kMaxLevels
               ? add(kind)
               : add('!', "has more than 64 levels of objects and arrays");
  }
  bool close(char kind) {
    keys_.pop_back();
    return add(kind);
  }

  std::vector<std::unordered_set<std::string>> keys_;  // a set a level
};

JsonReader::JsonReader(std::string_view text, std::string path)
    : path_(std::move(path)) {
  Parser parser;
  // JSON has no zero byte, and the parser would take one for the end.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    parser.add('!', "has a zero at byte " + std::to_string(zero));
  } else if (Json::sax_parse(text.begin(), text.end(), &parser)) {
    parser.add('.');
  }
  tokens_ =
      std::make_shared<const std::vector<Token>>(std::move(parser.tokens));
}

void JsonReader::fail(const std::string& reason) const {
  std::string place;
  for (const std::string& key : keys_) {
    place += (place.empty() ? " at " : ", ") + printable(key);
  }
  throw DataError(path_, "holds JSON that is damaged" + place + ": " + reason);
}

const JsonReader::Token& JsonReader::next() const {
  const Token& token = (*tokens_)[at_];
  if (token.kind == '!') fail("the text " + token.value.get<std::string>());
  return token;
}

void JsonReader::step_over(char kind) {
  if (next().kind != kind) fail(std::string("expected '") + kind + "'");
  ++at_;
}

void JsonReader::begin_object() {
  step_over('{');
  keys_.emplace_back();
}

bool JsonReader::next_key(std::string& key) {
  const Token& token = next();
  ++at_;
  if (token.kind == '}') {
    keys_.pop_back();
    return false;
  }
  key = keys_.back() = token.value;
  return true;
}

bool JsonReader::next_element() {
  if (next().kind != ']') return true;
  ++at_;
  return false;
}

std::string JsonReader::string() {
  const Json& value = next().value;
  if (!value.is_string()) fail("expected a text in quotes");
  ++at_;
  return value;
}

int64_t JsonReader::integer() {
  const Json& value = next().value;
  if (!value.is_number_integer()) fail("expected a whole number");
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    fail("expected a whole number of at most 63 bits");
  }
  ++at_;
  return value;
}

double JsonReader::number() {
  const Json& value = next().value;
  if (!value.is_number() && !value.is_null()) fail("expected a number");
  ++at_;
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  const bool has_minus =
      value.is_number_integer() && !value.is_number_unsigned();
  return has_minus && value == 0 ? -0.0 : value.get<double>();
}

bool JsonReader::boolean() {
  const Json& value = next().value;
  if (!value.is_boolean()) fail("expected true or false");
  ++at_;
  return value;
}

void JsonReader::end() {
  if ((*tokens_)[at_].kind != '.') fail("expected the end of the text");
}

std::string json_quoted(std::string_view text) {
  return Json(text).dump(
      -1,
      ' ',
      /*ensure_ascii=*/false,
      Json::error_handler_t::replace);
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  return {text.begin(), end};
}

// ---- Fields ----

namespace {

template <class T>  // bool or int64_t
std::string text_of(T value) {
  return Json(value).dump();
}
std::string text_of(double value) {
  return json_number(value);
}
std::string text_of(const std::optional<double>& value) {
  return value ? json_number(*value) : "null";
}
std::string text_of(const std::string& value) {
  return json_quoted(value);
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    text += (text.empty() ? "" : ", ") + text_of(value);
  }
  return "[" + text + "]";
}

void read(JsonReader& json, bool& value) {
  value = json.boolean();
}
void read(JsonReader& json, int64_t& value) {
  value = json.integer();
}
void read(JsonReader& json, double& value) {
  value = json.number();
}
void read(JsonReader& json, std::optional<double>& value) {
  value = json.number();
  if (std::isnan(*value)) value.reset();
}
void read(JsonReader& json, std::string& value) {
  value = json.string();
}
template <class T>
void read(JsonReader& json, std::vector<T>& values) {
  values.clear();
  json.begin_array();
  while (json.next_element()) read(json, values.emplace_back());
}

}  // namespace

std::string to_json(const JsonFields& fields) {
  std::string text;
  for (const auto& [name, field] : fields) {
    text += (text.empty() ? "" : ", ") + json_quoted(name) + ": " +
            std::visit([](const auto* at) { return text_of(*at); }, field);
  }
  return "{" + text + "}";
}

void read_json(
    std::string_view text,
    const JsonFields& fields,
    const std::string& where) {
  JsonReader json(text, where);
  read_json(json, fields);
  json.end();
}

void read_json(JsonReader& json, const JsonFields& fields) {
  std::string name;
  json.begin_object();
  while (json.next_key(name)) {
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& item) {
          return item.first == name;
        });
    if (field == fields.end()) {
      std::string known;
      for (const auto& item : fields) {
        known += (known.empty() ? "" : ", ") + item.first;
      }
      json.fail(
          "the field " + printable(name) + " is not known; expected one of " +
          known + ". A newer version may have written it");
    }
    std::visit([&](auto* at) { read(json, *at); }, field->second);
  }
}

}  // namespace tern
