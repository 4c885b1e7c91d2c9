#include "tern/learner/weights/weights.h"

#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/model.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/state_dicts.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/test_data.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::weights_test {
namespace {

namespace fs = std::filesystem;
using test::layout_state;
using test::same_state;
using test::types_state;
using test::without;

StateDict small_state() {
  StateDict state;
  state.insert("a", torch::arange(6.f).reshape({2, 3}));
  state.insert("flags", torch::tensor({1, 0, 1}).to(torch::kBool));
  return state;
}

// While it exists, no file can grow beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes)
      : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(Weights, SafetensorsRestoreWhatWasSaved) {
  const TempFolder temp;
  const StateDict state = without(types_state(), {"complex128"});
  const std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"note", "a \"b\"\n"}};
  save_safetensors(temp / "a.safetensors", state, metadata);
  for (const bool memory_map : {false, true}) {
    EXPECT_TRUE(same_state(
        load_weights(temp / "a.safetensors", {.memory_map = memory_map}),
        state));
  }
  EXPECT_EQ(safetensors_metadata(temp / "a.safetensors"), metadata);
  EXPECT_EQ(temp.entries(), 1);  // no temporary file remains
}

TEST(Weights, PthRestoresWhatWasSaved) {
  const TempFolder temp;
  save_pth(temp / "a.pth", types_state());
  EXPECT_TRUE(same_state(load_weights(temp / "a.pth"), types_state()));
  EXPECT_EQ(temp.entries(), 1);
}

TEST(Weights, AnEmptyStateDictCanBeSavedAndLoaded) {
  const TempFolder temp;
  save_safetensors(temp / "a.safetensors", StateDict());
  EXPECT_TRUE(load_weights(temp / "a.safetensors").is_empty());
}

TEST(Weights, ViewsAreSavedWithTheirVisibleValues) {
  const TempFolder temp;
  const StateDict state = layout_state();
  save_safetensors(temp / "a.safetensors", state);
  save_pth(temp / "a.pth", state);
  EXPECT_TRUE(same_state(load_weights(temp / "a.safetensors"), state));
  const StateDict loaded = load_weights(temp / "a.pth");
  EXPECT_TRUE(same_state(loaded, state));
  EXPECT_EQ(loaded["same"].data_ptr(), loaded["base"].data_ptr());
  EXPECT_EQ(loaded["transposed"].strides(), state["transposed"].strides());
  EXPECT_EQ(
      loaded["channels_last"].strides(),
      state["channels_last"].strides());
  // Saving a small view does not save the whole large tensor.
  StateDict row;
  row.insert("row", torch::zeros({1000, 1000})[0]);
  save_pth(temp / "row.pth", row);
  EXPECT_LT(fs::file_size(temp / "row.pth"), 6000u);
}

TEST(Weights, ExpandedAndPlainViewsOfTheSameMemoryStaySeparate) {
  const TempFolder temp;
  const torch::Tensor base = torch::arange(4.f);
  StateDict state;
  state.insert("plain", base);
  state.insert("expanded", base.slice(0, 0, 1).expand({4}));
  const torch::Tensor z = torch::complex(base, base);
  state.insert("z", z);
  state.insert("conj", z.conj());
  save_pth(temp / "a.pth", state);
  const StateDict loaded = load_weights(temp / "a.pth");
  for (const auto& item : state) {
    EXPECT_TRUE(torch::equal(loaded[item.key()], item.value().resolve_conj()));
  }
}

TEST(Weights, RejectsWhatAFormatCannotStore) {
  const TempFolder temp;
  StateDict undefined, sparse, reserved, no_text, complex;
  undefined.insert("w", torch::Tensor());
  sparse.insert("w", torch::eye(3).to_sparse());
  reserved.insert("__metadata__", torch::ones({1}));
  no_text.insert("\xff", torch::ones({1}));
  complex.insert("w", torch::ones({1}, torch::kComplexDouble));
  const fs::path path = temp / "a";
  expect_error<c10::ValueError>(
      [&] { save_pth(path, undefined); },
      {"[save_pth]", "'w'", "undefined"});
  expect_error<c10::ValueError>(
      [&] { save_safetensors(path, sparse); },
      {"[save_safetensors]", "'w'", "Sparse"});
  expect_error<DataError>(
      [&] { save_safetensors(path, reserved); },
      {"__metadata__"});
  expect_error<DataError>([&] { save_safetensors(path, no_text); }, {"UTF-8"});
  expect_error<DataError>([&] { save_pth(path, no_text); }, {"UTF-8"});
  expect_error<DataError>(
      [&] { save_safetensors(path, complex); },
      {"complex128", "no such dtype"});
  EXPECT_EQ(temp.entries(), 0);
}

TEST(Weights, AFailedSaveKeepsTheOldFile) {
  const TempFolder temp;
  save_safetensors(temp / "a", small_state());
  StateDict reserved;
  reserved.insert("__metadata__", torch::ones({1}));
  EXPECT_THROW(save_safetensors(temp / "a", reserved), DataError);
  EXPECT_TRUE(same_state(load_weights(temp / "a"), small_state()));
  expect_error<IoError>(
      [&] { save_pth(temp / "no/such/folder/a.pth", small_state()); },
      {"no/such/folder/a.pth", "No such file"});
  EXPECT_EQ(temp.entries(), 1);
}

TEST(Weights, AnImageHasTheSizeAndHashOfTheFile) {
  const TempFolder temp;
  StateDict state = small_state();
  state.insert("transposed", torch::randn({1000, 700}).t());
  const SafetensorsImage image(state, {{"note", "hi"}}, temp / "a");
  image.write(temp / "a");
  EXPECT_EQ(image.sha256(), sha256_file(temp / "a"));
  EXPECT_EQ(image.size(), std::filesystem::file_size(temp / "a"));
  EXPECT_TRUE(same_state(load_weights(temp / "a"), state));
}

TEST(Weights, AChecksumDetectsEveryChangedBitOfTheTensors) {
  const TempFolder temp;
  const fs::path path = temp / "a";
  save_safetensors(path, small_state(), {}, {.checksum = true});
  EXPECT_TRUE(same_state(load_weights(path), small_state()));
  std::vector<uint8_t> bytes = read_file(path);
  const size_t data = bytes.size() - 27;  // six floats and three bools
  for (size_t i = data; i < bytes.size(); ++i) {
    bytes[i] ^= 1;
    write_file(path, bytes);
    expect_error<DataError>([&] { load_weights(path); }, {"SHA-256"});
    EXPECT_THROW(load_weights(path, {.memory_map = true}), DataError);
    bytes[i] ^= 1;
  }
}

TEST(Weights, AGivenSha256DetectsEveryChangedBit) {
  const TempFolder temp;
  const fs::path path = temp / "a";
  for (const bool is_pth : {false, true}) {
    is_pth ? save_pth(path, small_state())
           : save_safetensors(path, small_state());
    const std::string sum = sha256_file(path);
    EXPECT_TRUE(same_state(load_weights(path, {.sha256 = sum}), small_state()));
    std::vector<uint8_t> bytes = read_file(path);
    for (size_t i = 0; i < bytes.size(); i += 7) {
      bytes[i] ^= 1;
      write_file(path, bytes);
      expect_error<DataError>(
          [&] { load_weights(path, {.sha256 = sum}); },
          {"SHA-256", sum});
      bytes[i] ^= 1;
    }
  }
  expect_error<c10::ValueError>(
      [&] { load_weights(path, {.sha256 = "ABC"}); },
      {"64 lower-case"});
}

TEST(Weights, AChecksumFileHasTheFormatOfSha256sumAndIsVerified) {
  const TempFolder temp;
  for (const char* name : {"a.safetensors", "a.pth"}) {
    const fs::path path = temp / name,
                   sum = temp / (name + std::string(".sha256"));
    const auto save = [&](bool sha256_file) {
      const SaveWeightsOptions options{.sha256_file = sha256_file};
      path.extension() == ".pth"
          ? save_pth(path, small_state(), options)
          : save_safetensors(path, small_state(), {}, options);
    };
    save(true);
    const std::vector<uint8_t> line = read_file(sum);
    EXPECT_EQ(as_text(line), sha256_file(path) + "  " + name + "\n");
    EXPECT_FALSE(load_weights(path).unverified);
    std::vector<uint8_t> bytes = read_file(path);
    bytes.back() ^= 1;
    write_file(path, bytes);
    expect_error<DataError>([&] { load_weights(path); }, {name, "SHA-256"});
    save(false);  // otherwise the old checksum would reject it
    EXPECT_FALSE(fs::exists(sum));
    EXPECT_TRUE(same_state(load_weights(path), small_state()));
    write_file(sum, to_text({{"b", sha256_file(path)}}));
    expect_error<DataError>(
        [&] { load_weights(path); },
        {"has no checksum for"});
  }
}

TEST(Weights, AFailedSaveKeepsTheFileAndItsChecksum) {
  const TempFolder temp;
  StateDict large;
  large.insert("a", torch::zeros({100'000}));
  for (const char* name : {"a.safetensors", "a.pth"}) {
    const fs::path path = temp / name;
    const auto save = [&](const StateDict& state) {
      const SaveWeightsOptions options{.sha256_file = true};
      path.extension() == ".pth" ? save_pth(path, state, options)
                                 : save_safetensors(path, state, {}, options);
    };
    save(small_state());
    const std::vector<uint8_t> sum = read_file(sum_file(path));
    {
      const FileSizeLimit limit(100'000);
      EXPECT_THROW(save(large), IoError) << name;
    }
    EXPECT_EQ(read_file(sum_file(path)), sum);
    EXPECT_TRUE(same_state(load_weights(path), small_state())) << name;
  }
}

TEST(Weights, ReportsFilesWithoutChecksums) {
  const TempFolder temp;
  const fs::path path = temp / "a";
  const auto report = [&] {
    Model model = torch::nn::Linear(2, 1);
    return model.load_state_dict(load_weights(path));
  };
  const StateDict state = Model(torch::nn::Linear(2, 1)).state_dict();
  save_safetensors(path, state);
  EXPECT_TRUE(report().unverified);
  EXPECT_EQ(report().to_string(), "2 loaded, from a file without checksums");
  save_safetensors(path, state, {}, {.checksum = true});
  EXPECT_FALSE(report().unverified);
  save_pth(path, state);
  EXPECT_FALSE(report().unverified);
  EXPECT_EQ(report().to_string(), "2 loaded");
  EXPECT_TRUE(
      load_weights(in_tests_folder("parity/fixtures/weights/types_legacy.pth"))
          .unverified);
}

TEST(Weights, IdentifiesFilesThatAreNotWeights) {
  const TempFolder temp;
  const fs::path path = temp / "a";
  struct Case {
    std::string content, word;
  };
  for (const Case& c :
       {Case{"", "is empty"},
        Case{"\n<!DOCTYPE html><title>404</title>", "web page"},
        Case{"version https://git-lfs.github.com/spec/v1\n", "Git LFS"},
        Case{"\x1f\x8b\x08 and so on", "gzip"},
        Case{"\x89HDF\r\n\x1a\n", "HDF5"},
        Case{"\x80\x02]q\x01.", "not written by torch.save"},
        Case{"just some text", "does not start like a weight file"}}) {
    write_file(path, c.content);
    expect_error<DataError>([&] { load_weights(path); }, {"a: ", c.word});
    expect_error<DataError>(
        [&] { safetensors_metadata(path); },
        {"not a safetensors"});
  }
  expect_error<IoError>([&] { load_weights(temp / "b"); }, {"No such file"});
  expect_error<DataError>([&] { load_weights(temp.path()); }, {"folder"});
}

TEST(Weights, RejectsABoolOtherThanZeroOrOne) {
  const TempFolder temp;
  const fs::path path = temp / "a";
  save_safetensors(path, small_state());
  std::vector<uint8_t> bytes = read_file(path);
  bytes.back() = 2;
  write_file(path, bytes);
  expect_error<DataError>(
      [&] { load_weights(path); },
      {"'flags'", "neither 0 nor 1"});
}

TEST(Weights, AFileThatIsTruncatedWhileItIsReadIsAnErrorAndNoCrash) {
  const TempFolder temp;
  const fs::path path = temp / "a";
  StateDict large;
  large.insert("w", torch::ones({1 << 20}));
  int read = 0, refused = 0;
  for (int i = 0; i < 50; ++i) {
    fs::remove(path);
    save_safetensors(path, large, {}, {.durable = false});
    std::thread cutter([&] {
      // Mostly during the read, which takes about a millisecond.
      std::this_thread::sleep_for(std::chrono::microseconds(i * 40));
      fs::resize_file(path, 1000);
    });
    try {
      EXPECT_EQ(load_weights(path)["w"].sum().item<float>(), 1 << 20);
      ++read;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("truncated"), std::string::npos);
      ++refused;
    }
    cutter.join();
  }
  EXPECT_EQ(read + refused, 50);
}

// Returns whether a changed file is rejected. If it is loaded, reads every
// value, so that a value outside of its memory is detected. A different
// exception fails the test.
bool is_refused(const fs::path& path, const std::vector<uint8_t>& bytes) {
  fs::remove(path);  // truncating an existing file can wait for the disk
  write_file(path, bytes);
  try {
    for (const auto& item : load_weights(path)) {
      if (item.value().numel() < 1'000'000) (void)item.value().clone();
    }
    return false;
  } catch (const DataError&) {
    return true;
  }
}

struct Format {
  const char* name;
  void (*save)(const fs::path&);
  bool has_checksum;
};

class WeightFormats : public testing::TestWithParam<Format> {};

TEST_P(WeightFormats, EveryTruncationIsRejected) {
  const TempFolder temp;
  GetParam().save(temp / "whole");
  const std::vector<uint8_t> whole = read_file(temp / "whole");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + size);
    EXPECT_TRUE(is_refused(temp / "cut", cut)) << size;
  }
  std::vector<uint8_t> longer = whole;
  longer.push_back(0);
  EXPECT_TRUE(is_refused(temp / "cut", longer));
}

TEST_P(WeightFormats, FlippedBitsOnlyChangeValues) {
  const TempFolder temp;
  GetParam().save(temp / "whole");
  const std::vector<uint8_t> whole = read_file(temp / "whole");
  std::minstd_rand random(1);
  int refused = 0;
  constexpr int kFlips = 3000;
  for (int i = 0; i < kFlips; ++i) {
    std::vector<uint8_t> bytes = whole;
    // One bit, or a few bytes at once.
    const int changes = i % 2 == 0 ? 1 : 4;
    for (int k = 0; k < changes; ++k) {
      bytes[random() % bytes.size()] ^=
          i % 2 == 0 ? 1u << random() % 8 : random() % 256;
    }
    refused += is_refused(temp / "flipped", bytes);
  }
  EXPECT_GT(refused, GetParam().has_checksum ? kFlips / 3 : kFlips / 10);
  if (!GetParam().has_checksum) return;
  // A file with checksums yields the saved values, or none.
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 3) {
    std::vector<uint8_t> bytes = whole;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    if (is_refused(temp / "flipped", bytes)) continue;
    EXPECT_TRUE(same_state(load_weights(temp / "flipped"), small_state()))
        << "bit " << bit;
  }
}

TEST(Weights, AChecksumCoversNamesShapesAndMetadata) {
  const TempFolder temp;
  StateDict state;
  state.insert("square", torch::rand({3, 3}));
  state.insert("long", torch::arange(6).view({2, 3}));
  const std::map<std::string, std::string> metadata = {
      {"classes", R"(["cat", "dog"])"},
      {"epoch", "12"}};
  save_safetensors(temp / "a", state, metadata, {.checksum = true});
  const std::vector<uint8_t> whole = read_file(temp / "a");
  const auto is_given_back = [&](const fs::path& path) {
    const StateDict read = load_weights(path);
    auto texts = safetensors_metadata(path);
    std::erase_if(texts, [](const auto& item) {
      return item.first.starts_with("tern.");
    });
    return same_state(read, state) && texts == metadata;
  };
  EXPECT_TRUE(is_given_back(temp / "a"));
  int refused = 0, given = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::vector<uint8_t> bytes = whole;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    if (is_refused(temp / "flipped", bytes)) {
      ++refused;
      continue;
    }
    ++given;
    // The name of a checksum entry may change; a file that lost its checksum is
    // not checked.
    const auto texts = safetensors_metadata(temp / "flipped");
    if (!texts.contains("tern.header")) continue;
    EXPECT_TRUE(is_given_back(temp / "flipped")) << "bit " << bit;
  }
  EXPECT_GT(refused, 10 * given);

  // As if edited by hand, with the same length.
  std::string text(whole.begin(), whole.end());
  text.replace(text.find("dog"), 3, "fox");
  write_file(temp / "b", text);
  expect_error<DataError>(
      [&] { safetensors_metadata(temp / "b"); },
      {"header whose SHA-256 differs"});
  expect_error<DataError>(
      [&] { load_weights(temp / "b"); },
      {"header whose SHA-256 differs"});
}

INSTANTIATE_TEST_SUITE_P(
    All,
    WeightFormats,
    testing::Values(
        Format{
            "safetensors",
            [](const fs::path& path) {
              save_safetensors(path, small_state(), {}, {.durable = false});
            },
            false},
        Format{
            "pth",
            [](const fs::path& path) {
              save_pth(path, small_state(), {.durable = false});
            },
            true},
        Format{
            "pth_legacy",
            [](const fs::path& path) {
              write_file(
                  path,
                  read_file(in_tests_folder(
                      "parity/fixtures/weights/layout_legacy.pth")));
            },
            false}),
    [](const auto& info) { return info.param.name; });

TEST(Weights, LoadsTheKnownTensorsOfLegacyAndCurrentPyTorchFiles) {
  TERN_REQUIRE_DATA(data);
  const fs::path folder = data / "weights";
  const StateDict resnet = load_weights(folder / "resnet20-12fca82f.th");
  EXPECT_EQ(resnet.size(), 97u);
  EXPECT_EQ(
      resnet["module.conv1.weight"].sizes(),
      (std::vector<int64_t>{16, 3, 3, 3}));
  EXPECT_EQ(load_weights(folder / "mtcnn_pnet.pt").size(), 13u);
  EXPECT_EQ(load_weights(folder / "mtcnn_rnet.pt").size(), 16u);
  EXPECT_EQ(load_weights(folder / "mtcnn_onet.pt").size(), 21u);
  const StateDict squeezenet =
      load_weights(folder / "squeezenet1_0_face2age.pth");
  EXPECT_EQ(squeezenet.size(), 52u);
  EXPECT_EQ(
      squeezenet["features.0.weight"].sizes(),
      (std::vector<int64_t>{96, 3, 7, 7}));
  for (const auto& item : squeezenet) {
    EXPECT_TRUE(item.value().isfinite().all().item<bool>()) << item.key();
  }
}

}  // namespace
}  // namespace tern::weights_test
