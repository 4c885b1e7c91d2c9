#include "tern/data/formats/weights/safetensors.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::safetensors_test {
namespace {

std::string length_of(uint64_t size) {
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(size >> (8 * i));
  return length;
}

StoredWeights parse(const std::string& content) {
  const std::vector<uint8_t> bytes(content.begin(), content.end());
  return read_safetensors_header(ByteFile(bytes, "a.safetensors"));
}

// Parses a file with this header and this many bytes of data.
StoredWeights parse(const std::string& header, size_t data) {
  return parse(length_of(header.size()) + header + std::string(data, 'x'));
}

TEST(Safetensors, ReadsNamesDtypesShapesOffsetsAndMetadata) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"F16","shape":[2,2],"data_offsets":[4,12]},)"
      R"("a":{"data_offsets":[0,4],"dtype":"F32","shape":[]}}   )";
  const StoredWeights weights = parse(header, 12);
  EXPECT_EQ(weights.metadata.at("format"), "pt");
  ASSERT_EQ(weights.tensors.size(), 2u);
  EXPECT_EQ(weights.tensors[0].name, "b");
  EXPECT_EQ(weights.tensors[0].type, StoredType::float16);
  EXPECT_EQ(weights.tensors[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(weights.tensors[0].strides, (std::vector<int64_t>{2, 1}));
  const StoredBytes& storage = weights.storages[weights.tensors[0].storage];
  EXPECT_EQ(storage.begin, 8 + header.size() + 4);
  EXPECT_EQ(storage.size, 8u);
  EXPECT_TRUE(weights.tensors[1].shape.empty());
}

TEST(Safetensors, ReadsTheHeaderThatItWrites) {
  std::vector<StoredTensor> tensors = {
      {.name = "half", .type = StoredType::float16, .shape = {3}},
      {.name = "a \"quoted\" é", .type = StoredType::float64, .shape = {2, 0}},
      {.name = "long", .type = StoredType::int64, .shape = {}},
      {.name = "float", .type = StoredType::float32, .shape = {5, 1}}};
  const std::string header =
      safetensors_header(tensors, {{"k\n", "v"}}, "a.safetensors");
  EXPECT_EQ(header.size() % 8, 0u);
  // The largest elements come first, so that all tensors are aligned.
  EXPECT_EQ(safetensors_order(tensors), (std::vector<size_t>{1, 2, 3, 0}));
  const StoredWeights weights = parse(header + std::string(8 + 20 + 6, 'x'));
  EXPECT_EQ(weights.metadata.at("k\n"), "v");
  ASSERT_EQ(weights.tensors.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(weights.tensors[i].name, tensors[i].name);
    EXPECT_EQ(weights.tensors[i].type, tensors[i].type);
    EXPECT_EQ(weights.tensors[i].shape, tensors[i].shape);
    const uint64_t begin = weights.storages[i].begin;
    EXPECT_EQ(begin % info_of(tensors[i].type).bytes, 0u);
  }
}

struct Case {
  const char* name;
  std::string header;
  size_t data;
  std::vector<std::string_view> words;
};

class SafetensorsFaults : public testing::TestWithParam<Case> {};

TEST_P(SafetensorsFaults, AreRejectedWithAReason) {
  const Case& c = GetParam();
  const std::string error =
      error_of<DataError>([&] { parse(c.header, c.data); });
  EXPECT_TRUE(error.starts_with("a.safetensors: ")) << error;
  for (const std::string_view word : c.words) {
    EXPECT_NE(error.find(word), error.npos) << word << " in: " << error;
  }
}

std::string one(const std::string& entry) {
  return "{\"a\":{" + entry + "}}";
}
const std::string kF32 = R"("dtype":"F32",)";

INSTANTIATE_TEST_SUITE_P(
    All,
    SafetensorsFaults,
    testing::Values(
        Case{"no_brace", " {}", 0, {"'{'"}},
        Case{"empty", "", 0, {"'{'"}},
        Case{"no_object", "{", 0, {"JSON"}},
        Case{"garbage_behind", "{}{}", 0, {"JSON", "end"}},
        Case{"no_utf8", "{\"\xff\":{}}", 0, {"an error in its JSON at byte"}},
        Case{"number_as_metadata", R"({"__metadata__":{"a":1}})", 0, {"JSON"}},
        Case{"deep_metadata", R"({"__metadata__":{"a":{}}})", 0, {"JSON"}},
        Case{
            "two_metadata",
            R"({"__metadata__":{},"__metadata__":{}})",
            0,
            {"__metadata__", "twice"}},
        Case{
            "two_names",
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            2,
            {"'a'", "twice"}},
        Case{
            "two_dtypes",
            one(kF32 + kF32 + R"("shape":[],"data_offsets":[0,4])"),
            4,
            {"'dtype'", "twice"}},
        Case{
            "unknown_key",
            one(kF32 + R"("shape":[],"data_offsets":[0,4],"x":[])"),
            4,
            {"'a'", "'x' is unknown; expected one of dtype"}},
        Case{
            "no_shape",
            one(kF32 + R"("data_offsets":[0,4])"),
            4,
            {"'a'", "shape"}},
        Case{
            "unknown_type",
            one(R"("dtype":"F31","shape":[],"data_offsets":[0,4])"),
            4,
            {"'F31'", "unknown"}},
        Case{
            "empty_type",
            one(R"("dtype":"","shape":[],"data_offsets":[0,4])"),
            4,
            {"unknown"}},
        Case{
            "negative_size",
            one(kF32 + R"("shape":[-1],"data_offsets":[0,4])"),
            4,
            {"'a' has no shape"}},
        Case{
            "overflow",
            one(kF32 + R"("shape":[4294967296,4294967296],)"
                       R"("data_offsets":[0,0])"),
            0,
            {"'a'", "too large"}},
        Case{
            "overflow_hidden_by_zero",
            one(kF32 + R"("shape":[4294967296,4294967296,0],)"
                       R"("data_offsets":[0,0])"),
            0,
            {"too large"}},
        Case{
            "size_differs",
            one(kF32 + R"("shape":[2],"data_offsets":[0,4])"),
            4,
            {"'a' has 4 bytes", "expect 8"}},
        Case{
            "offsets_reversed",
            one(kF32 + R"("shape":[],"data_offsets":[4,0])"),
            4,
            {"data_offsets"}},
        Case{
            "three_offsets",
            one(kF32 + R"("shape":[],"data_offsets":[0,4,8])"),
            4,
            {"data_offsets"}},
        Case{
            "hole_at_start",
            one(kF32 + R"("shape":[],"data_offsets":[4,8])"),
            8,
            {"'a'", "begins at byte 4", "expected 0"}},
        Case{
            "hole_between",
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
            3,
            {"'b'", "begins at byte 2"}},
        Case{
            "overlap",
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
            R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3,
            {"'b'", "overlap"}},
        Case{
            "same_place",
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
            R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
            2,
            {"overlap"}},
        Case{
            "data_cut",
            one(kF32 + R"("shape":[],"data_offsets":[0,4])"),
            3,
            {"truncated"}},
        Case{
            "data_behind",
            one(kF32 + R"("shape":[],"data_offsets":[0,4])"),
            5,
            {"expects"}},
        Case{
            "huge_offsets",
            one(kF32 + R"("shape":[],"data_offsets":)"
                       R"([9223372036854775803,9223372036854775807])"),
            4,
            {"'a'", "begins at byte"}}),
    [](const auto& info) { return info.param.name; });

TEST(Safetensors, RejectsAHeaderBeyondTheFileOrTheLimit) {
  expect_error<DataError>([] { parse("{}"); }, {"truncated"});
  expect_error<DataError>(
      [] { parse(length_of(3) + "{}"); },
      {"header length of 3 bytes", "truncated"});
  expect_error<DataError>(
      [] { parse(length_of(~uint64_t{0}) + "{}"); },
      {"header length of 18446744073709551615 bytes"});
  const std::string large = "{" + std::string(17 << 20, ' ') + "}";
  expect_error<DataError>(
      [&] { parse(large, 0); },
      {"header of", "expected at most 16777216"});
}

}  // namespace
}  // namespace tern::safetensors_test
