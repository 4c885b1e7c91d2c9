#include "tern/data/formats/weights/pth.h"

#include <functional>
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

TEST_P(PthViews, BeyondTheirStorageAreRejected) {
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

TEST(Pth, AcceptsAnEmptyViewAndARepeatedElement) {
  read(legacy_file(dict_of(view(6, 6, {0}, {1})), {6}));
  read(legacy_file(dict_of(view(6, 5, {1000}, {0})), {6}));
  read(legacy_file(dict_of(view(0, 0, {0, 5}, {5, 1})), {0}));
}

TEST(Pth, RejectsInvalidStorages) {
  const std::string dict = dict_of(view(6, 0, {6}, {1}));
  const auto refuses = [](const std::string& file, const char* word) {
    expect_error<DataError>([&] { read(file); }, {"a.pth", word});
  };
  refuses(legacy_file(dict, {5}), "size differs from its header");
  refuses(legacy_file(dict, {}), "does not contain a tensor's storage");
  refuses(legacy_file(dict, {6, 6}), "no tensor uses");
  std::string file = legacy_file(dict, {6});
  refuses(file + "x", "1 bytes after");
  refuses(file.substr(0, file.size() - 1), "truncated");
  refuses(legacy_file(dict_of(view(-1, 0, {0}, {1})), {0}), "-1 elements");
  refuses(legacy_file(dict_of(view(kMax, 0, {0}, {1})), {0}), "elements");
  refuses(
      legacy_file(
          dict_of(PickleBytes().tensor("0", 6, 0, {6}, {1}, "Size")),
          {6}),
      "damaged storage");
  // One storage with two sizes.
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

TEST(Pth, RejectsTensorsCreatedByOtherFunctions) {
  const auto refuses = [](const PickleBytes& value, const char* word) {
    expect_error<DataError>(
        [&] { read(legacy_file(dict_of(value), {})); },
        {"a.pth", word});
  };
  // Wrappers without a tensor.
  refuses(
      PickleBytes()
          .global("torch._utils", "_rebuild_parameter")
          .op('N')
          .op(0x85)
          .op('R'),
      "unknown function");
  refuses(
      PickleBytes()
          .global("torch._utils", "_rebuild_tensor_v2")
          .op(')')
          .op('R'),
      "incomplete tensor");
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

TEST(Pth, RejectsADuplicateTensor) {
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

TEST(Pth, FindsDictionariesUpToSixteenLevelsDeep) {
  EXPECT_EQ(read(nested(16)).tensors.size(), 1u);
  EXPECT_EQ(read(nested(3), "a/a/a").tensors.size(), 1u);
  expect_error<DataError>([] { read(nested(17)); }, {"16 deep"});
}

// Adds a dictionary of tensors "w0", "w1", ..., and a number if it is not
// complete.
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

TEST(Pth, SelectsADictionaryByDefaultOnlyIfItIsCompleteAndTheLargest) {
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

TEST(Pth, FindsDictionariesInListsTuplesAndUnderEveryKey) {
  // {"nets": [{2 tensors}], "ema": {2 tensors}}, and similar.
  const auto file = [](const auto& add_first) {
    PickleBytes object, net;
    net.bytes.clear();
    add_dict(net, "x", 2, true);  // "x", the dictionary, SETITEM
    const std::string dict = net.bytes.substr(6, net.bytes.size() - 7);
    object.op('}');
    add_first(object, dict);
    add_dict(object, "ema", 2, true);
    return legacy_file(object.finish(), {6});
  };
  const std::string long_key(300, 'k');
  struct Case {
    std::string key;
    std::function<void(PickleBytes&, const std::string&)> add;
  };
  for (const Case& c : std::vector<Case>{
           {"nets/0",
            [](PickleBytes& o, const std::string& dict) {
              o.string("nets").op(']').bytes += dict;
              o.op('a').op('s');
            }},
           {"nets/1/a",
            [](PickleBytes& o, const std::string& dict) {
              o.string("nets").op('N').op('}').string("a").bytes += dict;
              o.op('s').op(0x86).op('s');
            }},
           {"-7",
            [](PickleBytes& o, const std::string& dict) {
              o.integer(-7).bytes += dict;
              o.op('s');
            }},
           {"?",
            [](PickleBytes& o, const std::string& dict) {
              o.tuple({1, 2}).bytes += dict;
              o.op('s');
            }},
           {long_key, [&](PickleBytes& o, const std::string& dict) {
              o.string(long_key).bytes += dict;
              o.op('s');
            }}}) {
    const std::string bytes = file(c.add);
    expect_error<DataError>(
        [&] { read(bytes); },
        {"several", c.key.substr(0, 200), "'ema' (2 tensors)"});
    EXPECT_EQ(read(bytes, c.key).tensors.size(), 2u) << c.key;
    EXPECT_EQ(read(bytes, "ema").tensors.size(), 2u) << c.key;
    EXPECT_THROW(read(bytes, c.key + "/0"), DataError);
    EXPECT_THROW(read(bytes, "/" + c.key), DataError);
  }
}

TEST(Pth, SkipsDictionariesThatLookLikeOptimizerState) {
  for (const char* beside : {"param_groups", "hypers", "other"}) {
    PickleBytes object;
    object.op('}');
    add_dict(object, "model", 1, true);
    // {"opt": {"state": {0: {2 tensors}}, "param_groups": []}}
    object.string("opt").op('}').string("state").op('}').integer(0);
    add_dict(object, "x", 2, true);
    const size_t key = object.bytes.rfind(std::string("X\1\0\0\0x", 6));
    object.bytes.erase(key, 6);
    object.op('s').string(beside).op(']').op('s').op('s');
    const std::string file = legacy_file(object.finish(), {6});
    if (beside == std::string("other")) {
      expect_error<DataError>(
          [&] { read(file); },
          {"several", "'opt/state/0' (2 tensors)"});
    } else {
      EXPECT_EQ(read(file).tensors.size(), 1u) << beside;
    }
  }
}

TEST(Pth, RejectsAnAmbiguousKey) {
  PickleBytes object;
  object.op('}');
  add_dict(object, "a/b", 2, true);
  object.string("a").op('}');
  add_dict(object, "b", 1, true);
  object.op('s');
  expect_error<DataError>(
      [&] { read(legacy_file(object.finish(), {6}), "a/b"); },
      {"several", "with that name", "(2 tensors)", "(1 tensors)"});
}

TEST(Pth, HandlesADictionaryThatContainsItself) {
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

TEST(Pth, RejectsOtherVersionsOfTheLegacyFormat) {
  std::string file = legacy_file(dict_of(view(6, 0, {6}, {1})), {6});
  expect_error<DataError>(
      [&] {
        std::string changed = file;
        changed[15 + 4] ^= 1;  // in the protocol number
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
