#include "tern/data/formats/json_reader.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/utf8.h"

namespace tern {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLevels = 64;

}  // namespace

enum class JsonReader::Kind {
  object,
  object_end,
  array,
  array_end,
  key,
  value,
  text_end,
  fault
};

struct JsonReader::Token {
  Kind kind;
  Json value;  // or the text of a key or a fault
};

// nlohmann-json's parser calls this, and stops where it gets false.
class JsonReader::Parser final : public nlohmann::json_sax<Json> {
 public:
  std::vector<Token> tokens;

  bool add(Kind kind, Json value = Json::value_t::discarded) {
    tokens.push_back({kind, std::move(value)});
    return true;
  }
  bool refuse(const std::string& reason) {
    add(Kind::fault, reason);
    return false;
  }

  bool open(Kind kind) {
    keys_.emplace_back();
    return keys_.size() <= kMaxLevels
               ? add(kind)
               : refuse("has more than 64 levels of objects and arrays");
  }
  bool close(Kind kind) {
    keys_.pop_back();
    return add(kind);
  }

  bool null() override { return add(Kind::value, nullptr); }
  bool boolean(bool value) override { return add(Kind::value, value); }
  bool number_integer(int64_t value) override {
    return add(Kind::value, value);
  }
  bool number_unsigned(uint64_t value) override {
    return add(Kind::value, value);
  }
  bool number_float(double value, const std::string&) override {
    return add(Kind::value, value);
  }
  bool string(std::string& text) override { return add(Kind::value, text); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return open(Kind::object); }
  bool key(std::string& text) override {
    return keys_.back().insert(text).second
               ? add(Kind::key, text)
               : refuse("has the key " + printable(text) + " twice");
  }
  bool end_object() override { return close(Kind::object_end); }
  bool start_array(size_t) override { return open(Kind::array); }
  bool end_array() override { return close(Kind::array_end); }
  bool parse_error(
      size_t byte,
      const std::string&,
      const Json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    return refuse(
        error.id == kNumberOverflow
            ? "has a number that is larger than a double can hold"
            : "is damaged at byte " + std::to_string(byte));
  }

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // a set a level
};

JsonReader::JsonReader(std::string_view text, std::string path)
    : path_(std::move(path)) {
  if (!is_utf8(text)) throw DataError(path_, "holds JSON that is not UTF-8");
  Parser parser;
  // JSON has no zero byte, and the parser would take one for the end.
  if (text.find('\0') != text.npos) {
    parser.refuse("has a zero at byte " + std::to_string(text.find('\0')));
  } else if (Json::sax_parse(text.begin(), text.end(), &parser)) {
    parser.add(Kind::text_end);
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
  if (token.kind == Kind::fault) {
    fail("the text " + token.value.get<std::string>());
  }
  return token;
}

void JsonReader::step_over(Kind kind, const std::string& text) {
  if (next().kind != kind) fail("expected '" + text + "'");
  ++at_;
}

void JsonReader::begin_object() {
  step_over(Kind::object, "{");
  keys_.emplace_back();
}

bool JsonReader::next_key(std::string& key) {
  const Token& token = next();
  ++at_;
  if (token.kind == Kind::object_end) {
    keys_.pop_back();
    return false;
  }
  key = keys_.back() = token.value;
  return true;
}

void JsonReader::begin_array() {
  step_over(Kind::array, "[");
}

bool JsonReader::next_element() {
  if (next().kind != Kind::array_end) return true;
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
  if (!next().value.is_number_unsigned()) fail("expected a whole number");
  return signed_integer();
}

int64_t JsonReader::signed_integer() {
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
  if ((*tokens_)[at_].kind != Kind::text_end) {
    fail("expected the end of the text");
  }
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

}  // namespace tern
