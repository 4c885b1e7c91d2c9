#include "tern/data/formats/json.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <malloc.h>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"
#include "tern/tests/support/expect_error.h"

// Counts the heap memory of the program, to check its upper bound.
namespace {
std::atomic<int64_t> live_bytes = 0, peak_bytes = 0;
}

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  peak_bytes = std::max(peak_bytes.load(), live_bytes.load());
  return memory;
}

void operator delete(void* memory) noexcept {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}

namespace tern::json_test {
namespace {

std::string read_string(const std::string& text) {
  JsonReader json(text, "a.json");
  const std::string value = json.string();
  json.end();
  return value;
}

int64_t read_integer(const std::string& text) {
  JsonReader json(text, "a.json");
  const int64_t value = json.integer();
  json.end();
  return value;
}

// Reads {"KEY": [INTEGER, ...], ...}.
std::vector<int64_t> read_lists(const std::string& text) {
  JsonReader json(text, "a.json");
  std::vector<int64_t> numbers;
  std::string key;
  json.begin_object();
  while (json.next_key(key)) {
    json.begin_array();
    while (json.next_element()) numbers.push_back(json.integer());
  }
  json.end();
  return numbers;
}

TEST(JsonReader, ReadsObjectsArraysStringsAndIntegers) {
  EXPECT_EQ(
      read_lists(
          " {\"a\" : [ 1 ,2],\n\t\"b\":[], \"\":[9223372036854775807]} "),
      (std::vector<int64_t>{1, 2, 9223372036854775807}));
  EXPECT_EQ(read_lists("{}"), std::vector<int64_t>{});
}

TEST(JsonReader, UnderstandsEveryEscape) {
  EXPECT_EQ(read_string(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("\u0041\u00e9\u6F22\ud83d\ude00")"), "Aé漢😀");
  EXPECT_EQ(read_string(R"("\u0000")"), std::string(1, '\0'));
}

TEST(JsonReader, ReadsBackQuotedTextUnchanged) {
  std::string text = "é漢😀\"\\/";
  for (char c = 0; c < 0x20; ++c) text += c;
  EXPECT_EQ(read_string(json_quoted(text)), text);
}

TEST(JsonReader, RejectsInvalidJson) {
  for (const char* text :
       {"",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":[1",
        "{\"a\":[1}",
        "{\"a\":[1,]}",
        "{\"a\":[1],}",
        "{,}",
        "{\"a\" [1]}",
        "{\"a\":[1] \"b\":[2]}",
        "{a:[1]}",
        "{}x",
        "\xef\xbb\xbf{}",
        "{\"a\":[\xef\xbb\xbf"
        "1]}",
        "[1]",
        "{\"a\":[01]}",
        "{\"a\":[1.0]}",
        "{\"a\":[1e3]}",
        "{\"a\":[+1]}",
        "{\"a\":[\"1\"]}",
        "{\"a\":[null]}",
        "{\"a\":{}}",
        "{\"a\":[NaN]}",
        "{\"a\":[9223372036854775808]}"}) {
    expect_error<DataError>([&] { read_lists(text); }, {"a.json", "JSON"});
  }
  expect_error<DataError>(
      [] { read_lists(std::string("{}\0x", 4)); },
      {"a.json", "JSON", "byte 2"});
  for (const char* text :
       {R"("a)",
        R"("\x")",
        R"("\)",
        R"("\u12")",
        R"("\ud800")",
        R"("\udc00")",
        R"("\ud800\u0041")",
        "\"a\nb\"",
        "'a'"}) {
    EXPECT_THROW(read_string(text), DataError) << text;
  }
  EXPECT_EQ(read_integer("0"), 0);
}

TEST(JsonReader, NamesADuplicateKey) {
  expect_error<DataError>(
      [] { read_lists("{\"a\":[1],\"b\":[2],\"\\u0061\":[3]}"); },
      {"'a'", "twice"});
}

TEST(JsonReader, DeepNestingCostsNothing) {
  const std::string deep(1'000'000, '[');
  expect_error<DataError>(
      [&] { read_lists("{\"a\":" + deep); },
      {"expected a whole number"});
  const std::string nested = std::string(64, '[') + "1" + std::string(64, ']');
  JsonReader allowed(nested, "a.json");
  for (int i = 0; i < 64; ++i) allowed.begin_array();
  EXPECT_EQ(allowed.integer(), 1);
  expect_error<DataError>(
      [&] {
        JsonReader json("[" + nested + "]", "a.json");
        for (int i = 0; i < 65; ++i) json.begin_array();
      },
      {"64 levels"});
}

TEST(JsonReader, RejectsMoreThanTwoMillionTokens) {
  std::string text = "{\"a\":[0";
  for (int i = 0; i < 2'000'000; ++i) text += ",0";
  expect_error<DataError>(
      [&] { read_lists(text + "]}"); },
      {"a.json", "2,000,000"});
}

// All keys are kept until the end of their object, to detect duplicates.
TEST(JsonReader, AHostileFileTakesAtMost128MegabytesMoreThanItsText) {
  std::string text = "{\"0\":0";
  for (int64_t i = 1; i < 3'000'000; ++i) {
    text += ",\"" + std::to_string(i) + "\":0";
  }
  const int64_t before = live_bytes;
  peak_bytes = before;
  expect_error<DataError>(
      [&] {
        JsonReader json(text, "a.json");
        std::string key;
        json.begin_object();
        while (json.next_key(key)) json.integer();
      },
      {"2,000,000"});
  const int64_t copy_of_text = std::ssize(text);
  EXPECT_LT(peak_bytes - before, copy_of_text + 128'000'000);
  EXPECT_GT(peak_bytes - before, copy_of_text);  // the counter works
}

TEST(JsonReader, NamesTheKeysThatLeadToTheError) {
  JsonReader json(R"({"a": {"b": "c"}})", "a.json");
  std::string key;
  json.begin_object();
  json.next_key(key);
  json.begin_object();
  json.next_key(key);
  expect_error<DataError>(
      [&] { json.number(); },
      {"has an error in its JSON at byte 12 (in 'a', 'b'): expected a number"});
}

TEST(JsonReader, NamesAKeyOnlyOnce) {
  JsonReader json(R"({"a": {"b": 1, "b": 2}})", "a.json");
  std::string key;
  json.begin_object();
  json.next_key(key);
  json.begin_object();
  json.next_key(key);
  json.number();
  EXPECT_EQ(
      error_of<DataError>([&] { json.next_key(key); }),
      "a.json: has an error in its JSON at byte 18 (in 'a'): the object has "
      "the key "
      "'b' twice.");
}

TEST(Utf8, RecognizesWellFormedText) {
  for (const char* text : {"", "a", "é", "漢", "😀", "\U0010FFFF"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  for (const char* text :
       {"\x80",
        "\xc3",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe6\xbc",
        "\xed\xa0\x80",
        "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80",
        "\xf5\x80",
        "\xff",
        "a\xc3z"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

struct Options {
  bool deep = false;
  int64_t width = 8;
  double rate = 0.5;
  std::optional<double> dropout = {};
  std::string name = "net";
  std::vector<int64_t> sizes = {1, 2};
  std::vector<double> mean = {};
  std::vector<std::string> words = {"a"};

  friend bool operator==(const Options&, const Options&) = default;
};

JsonFields fields_of(Options& options) {
  return {
      {"deep", &options.deep},
      {"width", &options.width},
      {"rate", &options.rate},
      {"dropout", &options.dropout},
      {"name", &options.name},
      {"sizes", &options.sizes},
      {"mean", &options.mean},
      {"words", &options.words}};
}

TEST(JsonFields, AreWrittenAsOneObject) {
  Options options;
  EXPECT_EQ(
      to_json(fields_of(options)),
      R"({"deep": false, "width": 8, "rate": 0.5, "dropout": null, )"
      R"("name": "net", "sizes": [1, 2], "mean": [], "words": ["a"]})");
}

TEST(JsonFields, AreReadAsTheyWereWritten) {
  Options options{
      .deep = true,
      .width = -3,
      .rate = 0.1,
      .dropout = 0.2,
      .name = "\"é\n",
      .sizes = {},
      .mean = {0.485, 1e-300, -0.0},
      .words = {"", "b"}};
  Options read;
  read_json(to_json(fields_of(options)), fields_of(read), "a.json");
  EXPECT_EQ(read, options);
  options.dropout.reset();
  read_json(to_json(fields_of(options)), fields_of(read), "a.json");
  EXPECT_EQ(read, options);
}

TEST(JsonFields, KeepFieldsThatTheTextDoesNotName) {
  Options read{.width = 5};
  read_json(R"({"deep": true})", fields_of(read), "a.json");
  EXPECT_TRUE(read.deep);
  EXPECT_EQ(read.width, 5);
}

TEST(JsonFields, RejectUnknownKeysAndWrongTypes) {
  Options read;
  const auto refuse = [&](const char* text, std::string_view word) {
    expect_error<DataError>(
        [&] { read_json(text, fields_of(read), "a.json"); },
        {"a.json", word});
  };
  refuse(R"({"depth": 3})", "'depth' is unknown");
  refuse(R"({"width": 1.5})", "whole number");
  refuse(R"({"width": true})", "whole number");
  refuse(R"({"deep": 1})", "true or false");
  refuse(R"({"rate": "1"})", "expected a number");
  refuse(R"({"rate": 1e999})", "a double can hold");
  refuse(R"({"width": 1} {})", "the end");
}

TEST(JsonNumber, ReadsBackAsTheSameDouble) {
  for (const double value :
       {0.0, 1.0, -1.5, 0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308}) {
    EXPECT_EQ(JsonReader(json_number(value), "a").number(), value);
  }
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_TRUE(std::isnan(JsonReader("null", "a").number()));
}

}  // namespace
}  // namespace tern::json_test
