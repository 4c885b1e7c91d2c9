#include "tern/data/formats/weights/pth.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/pickle_bytes.h"

namespace tern::pth_test {
namespace {

StoredWeights read(const std::string& file, const std::string& key = "") {
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  return read_pth(ByteFile(bytes, "a.pth"), key);
}

// {"w": TENSOR}
std::string dict_of(const PickleBytes& tensor) {
  return PickleBytes().op('}').string("w").bytes + tensor.bytes.substr(2) +
         "s.";
}

PickleBytes view(
    int64_t elements,
    int64_t offset,
    const std::vector<int64_t>& shape,
    const std::vector<int64_t>& strides) {
  return PickleBytes().tensor("0", elements, offset, shape, strides);
}

TEST(Pth, ReadsViewsOfAStorage) {
  const std::string file =
      legacy_file(dict_of(view(6, 1, {2, 2}, {3, 1})), {6});
  const StoredWeights weights = read(file);
  ASSERT_EQ(weights.tensors.size(), 1u);
  EXPECT_EQ(weights.tensors[0].name, "w");
  EXPECT_EQ(weights.tensors[0].offset, 1);
  EXPECT_EQ(weights.tensors[0].strides, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(weights.storages.at(0).begin, file.size() - 24);
  EXPECT_EQ(weights.storages.at(0).size, 24u);
}

struct View {
  const char* name;
  int64_t offset;
  std::vector<int64_t> shape, strides;
  const char* word;
};

class PthViews : public testing::TestWithParam<View> {};

TEST_P(PthViews, BeyondTheirStorageAreRefused) {
  const View& v = GetParam();
  expect_error<DataError>(
      [&] {
        read(legacy_file(dict_of(view(6, v.offset, v.shape, v.strides)), {6}));
      },
      {"a.pth", "'w'", v.word});
}

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    All,
    PthViews,
    testing::Values(
        View{"one_too_many", 0, {7}, {1}, "6 elements"},
        View{"offset", 6, {1}, {1}, "6 elements"},
        View{"offset_negative", -1, {1}, {1}, "6 elements"},
        View{"offset_huge", kMax, {2}, {1}, "6 elements"},
        View{"stride", 0, {2, 3}, {4, 1}, "6 elements"},
        View{"stride_negative", 5, {2}, {-1}, "negative stride"},
        View{"stride_huge", 0, {3}, {kMax}, "6 elements"},
        View{"strides_huge", 0, {2, 2}, {kMax, kMax}, "6 elements"},
        View{"size_negative", 0, {-1}, {1}, "negative size"},
        View{"sizes_huge", 0, {kMax, kMax}, {0, 0}, "2^40"},
        View{"sizes_huge_and_zero", 0, {kMax, kMax, 0}, {0, 0, 0}, "2^40"},
        View{"sizes_without_strides", 0, {2}, {}, "0 strides"},
        View{"empty_beyond", 7, {0}, {1}, "6 elements"}),
    [](const auto& info) { return info.param.name; });

TEST(Pth, AnEmptyViewAndARepeatedElementAreFine) {
  read(legacy_file(dict_of(view(6, 6, {0}, {1})), {6}));
  read(legacy_file(dict_of(view(6, 5, {1000}, {0})), {6}));
  read(legacy_file(dict_of(view(0, 0, {0, 5}, {5, 1})), {0}));
}

TEST(Pth, RefusesStoragesThatAreNotAsTheyShouldBe) {
  const std::string dict = dict_of(view(6, 0, {6}, {1}));
  const auto refuses = [](const std::string& file, const char* word) {
    expect_error<DataError>([&] { read(file); }, {"a.pth", word});
  };
  refuses(legacy_file(dict, {5}), "another size");
  refuses(legacy_file(dict, {}), "lacks the storage");
  refuses(legacy_file(dict, {6, 6}), "no tensor has");
  std::string file = legacy_file(dict, {6});
  refuses(file + "x", "1 bytes behind");
  refuses(file.substr(0, file.size() - 1), "cut off");
  refuses(legacy_file(dict_of(view(-1, 0, {0}, {1})), {0}), "-1 elements");
  refuses(legacy_file(dict_of(view(kMax, 0, {0}, {1})), {0}), "elements");
  refuses(
      legacy_file(
          dict_of(PickleBytes().tensor("0", 6, 0, {6}, {1}, "Size")),
          {6}),
      "damaged storage");
  // One storage of two sizes.
  refuses(
      legacy_file(
          PickleBytes()
              .op('}')
              .string("v")
              .tensor("0", 6, 0, {6}, {1})
              .op('s')
              .string("w")
              .tensor("0", 5, 0, {5}, {1})
              .op('s')
              .finish(),
          {6}),
      "two sizes");
}

TEST(Pth, RefusesTensorsMadeInAnotherWay) {
  const auto refuses = [](const PickleBytes& value, const char* word) {
    expect_error<DataError>(
        [&] { read(legacy_file(dict_of(value), {})); },
        {"a.pth", word});
  };
  // Wrappers that never come to a tensor.
  refuses(
      PickleBytes()
          .global("torch._utils", "_rebuild_parameter")
          .op('N')
          .op(0x85)
          .op('R'),
      "unknown way");
  refuses(
      PickleBytes()
          .global("torch._utils", "_rebuild_tensor_v2")
          .op(')')
          .op('R'),
      "lacks a part");
  refuses(
      PickleBytes()
          .global("torch._utils", "_rebuild_tensor_v2")
          .op('(')
          .op('N')
          .op('N')
          .op('N')
          .op('N')
          .op('t')
          .op('R'),
      "damaged storage");
}

TEST(Pth, RefusesATensorThatIsThereTwice) {
  const std::string object = PickleBytes()
                                 .op('}')
                                 .string("w")
                                 .tensor("0", 6, 0, {6}, {1})
                                 .op('s')
                                 .string("w")
                                 .tensor("0", 6, 0, {6}, {1})
                                 .op('s')
                                 .finish();
  expect_error<DataError>(
      [&] { read(legacy_file(object, {6})); },
      {"'w'", "twice"});
}

// {"a": {"a": ... {"a": {"w": TENSOR}}}}
std::string nested(int depth) {
  PickleBytes object;
  for (int i = 0; i < depth; ++i) object.op('}').string("a");
  object.op('}').string("w").tensor("0", 6, 0, {6}, {1}).op('s');
  for (int i = 0; i < depth; ++i) object.op('s');
  return legacy_file(object.finish(), {6});
}

TEST(Pth, SeesDictionariesSixteenDeepAndRefusesDeeperOnes) {
  EXPECT_EQ(read(nested(16)).tensors.size(), 1u);
  EXPECT_EQ(read(nested(3), "a/a/a").tensors.size(), 1u);
  expect_error<DataError>([] { read(nested(17)); }, {"16 deep"});
}

// A dictionary of tensors "w0", "w1", ..., and a number where it is not whole.
PickleBytes& add_dict(
    PickleBytes& object,
    const std::string& key,
    int tensors,
    bool is_whole) {
  object.string(key).op('}');
  for (int i = 0; i < tensors; ++i) {
    object.string("w" + std::to_string(i));
    object.tensor("0", 6, 0, {6}, {1}).op('s');
  }
  if (!is_whole) object.string("epoch").integer(3).op('s');
  return object.op('s');
}

TEST(Pth, TakesADictionaryUnaskedOnlyIfItIsWholeAndTheLargest) {
  const auto read_two = [](int whole, int other) {
    PickleBytes object;
    object.op('}');
    add_dict(object, "ema", whole, true);
    add_dict(object, "model", other, false);
    return read(legacy_file(object.finish(), {6}));
  };
  EXPECT_EQ(read_two(2, 1).tensors.size(), 2u);
  expect_error<DataError>([&] { read_two(2, 2); }, {"several", "'model'"});
}

TEST(Pth, ADictionaryInItselfEndsTheSearch) {
  const std::string object = PickleBytes()
                                 .op('}')
                                 .op('q')
                                 .op(0)
                                 .string("me")
                                 .op('h')
                                 .op(0)
                                 .op('s')
                                 .string("w")
                                 .tensor("0", 6, 0, {6}, {1})
                                 .op('s')
                                 .finish();
  EXPECT_EQ(read(legacy_file(object, {6})).tensors.size(), 1u);
}

TEST(Pth, RefusesOtherVersionsOfTheLegacyFormat) {
  std::string file = legacy_file(dict_of(view(6, 0, {6}, {1})), {6});
  expect_error<DataError>(
      [&] {
        std::string changed = file;
        changed[15 + 4] ^= 1;  // of the protocol's number
        read(changed);
      },
      {"unknown version"});
  expect_error<DataError>(
      [&] {
        std::string changed = file;
        changed.replace(changed.find('\x88'), 1, "\x89");
        read(changed);
      },
      {"big-endian"});
}

}  // namespace
}  // namespace tern::pth_test
