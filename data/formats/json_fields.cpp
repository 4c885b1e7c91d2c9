#include "tern/data/formats/json_fields.h"

#include <algorithm>

#include "tern/data/formats/json_reader.h"
#include "tern/data/formats/printable.h"

namespace tern {

namespace {

std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  return json_number(value);
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
  value = json.signed_integer();
}
void read(JsonReader& json, double& value) {
  value = json.number();
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
  std::string name;
  json.begin_object();
  while (json.next_key(name)) {
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& item) {
          return item.first == name;
        });
    if (field == fields.end()) {
      json.fail(
          "the field " + printable(name) +
          " is not known; a newer version of Tern may have written it");
    }
    std::visit([&](auto* at) { read(json, *at); }, field->second);
  }
  json.end();
}

}  // namespace tern
