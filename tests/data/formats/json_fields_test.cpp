#include "tern/data/formats/json_fields.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/json_reader.h"
#include "tern/tests/support/expect_error.h"

namespace tern::json_fields_test {
namespace {

struct Options {
  bool deep = false;
  int64_t width = 8;
  double rate = 0.5;
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
      {"name", &options.name},
      {"sizes", &options.sizes},
      {"mean", &options.mean},
      {"words", &options.words}};
}

TEST(JsonFields, AreWrittenAsOneObject) {
  Options options;
  EXPECT_EQ(
      to_json(fields_of(options)),
      R"({"deep": false, "width": 8, "rate": 0.5, "name": "net", )"
      R"("sizes": [1, 2], "mean": [], "words": ["a"]})");
}

TEST(JsonFields, AreReadAsTheyWereWritten) {
  Options options{
      .deep = true,
      .width = -3,
      .rate = 0.1,
      .name = "\"é\n",
      .sizes = {},
      .mean = {0.485, 1e-300, -0.0},
      .words = {"", "b"}};
  Options read;
  read_json(to_json(fields_of(options)), fields_of(read), "a.json");
  EXPECT_EQ(read, options);
}

TEST(JsonFields, KeepWhatTheTextDoesNotName) {
  Options read{.width = 5};
  read_json(R"({"deep": true})", fields_of(read), "a.json");
  EXPECT_TRUE(read.deep);
  EXPECT_EQ(read.width, 5);
}

TEST(JsonFields, RefuseWhatTheyAreNot) {
  Options read;
  const auto refuse = [&](const char* text, std::string_view word) {
    expect_error<DataError>(
        [&] { read_json(text, fields_of(read), "a.json"); },
        {"a.json", word});
  };
  refuse(R"({"depth": 3})", "'depth' is not known");
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
}  // namespace tern::json_fields_test
