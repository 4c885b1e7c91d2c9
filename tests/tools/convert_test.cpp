#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/run_program.h"
#include "tern/tests/support/state_dicts.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/test_data.h"

namespace tern {
extern const char* const
    kTernConvert;  // a path, defined in a file that CMake writes
}

namespace tern::convert_test {
namespace {

using test::layout_state;
using test::same_state;

using Result = ProgramResult;

// Runs tern-convert with these arguments.
Result convert(const std::string& arguments) {
  return run_program(program_command(kTernConvert) + " " + arguments);
}

bool says(const Result& result, const std::string& words) {
  return result.says(words);
}

TEST(Convert, ConvertsBetweenTheFormats) {
  const TempFolder temp;
  save_pth(temp / "a.pth", layout_state());
  const std::string folder = temp.path().string();
  EXPECT_EQ(convert(folder + "/a.pth " + folder + "/b.safetensors").code, 0);
  EXPECT_TRUE(same_state(load_weights(temp / "b.safetensors"), layout_state()));
  const auto metadata = safetensors_metadata(temp / "b.safetensors");
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(convert(folder + "/b.safetensors " + folder + "/c.pt").code, 0);
  EXPECT_TRUE(same_state(load_weights(temp / "c.pt"), layout_state()));
}

TEST(Convert, KeepsTheMetadataOfSafetensors) {
  const TempFolder temp;
  const std::string folder = temp.path().string();
  save_safetensors(temp / "a.safetensors", layout_state(), {{"note", "hi"}});
  const std::string files = folder + "/a.safetensors " + folder;
  EXPECT_EQ(convert(files + "/b.safetensors").code, 0);
  const auto metadata = safetensors_metadata(temp / "b.safetensors");
  EXPECT_EQ(metadata.at("note"), "hi");
}

TEST(Convert, ListsNamesDtypesAndShapes) {
  const TempFolder temp;
  save_safetensors(temp / "a.safetensors", layout_state(), {{"note", "hi"}});
  const Result result = convert("list " + (temp / "a.safetensors").string());
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(says(result, "'transposed'")) << result.output;
  EXPECT_TRUE(says(result, "float32    [6, 4]")) << result.output;
  EXPECT_TRUE(says(result, "metadata 'note' = 'hi'")) << result.output;
  EXPECT_TRUE(says(result, "7 tensors, 119 elements")) << result.output;
}

TEST(Convert, RejectsAChangedFileAndAnUnknownExtension) {
  const TempFolder temp;
  const std::string file = (temp / "a.pth").string();
  save_pth(file, layout_state());
  EXPECT_EQ(convert("verify " + file).code, 0);
  std::vector<uint8_t> bytes = read_file(file);
  // The bytes between the tensors are zeros that are never read.
  const float in_base[] = {9, 10, 11};
  const auto number = std::ranges::search(
      bytes,
      std::span(reinterpret_cast<const uint8_t*>(in_base), sizeof in_base));
  ASSERT_FALSE(number.empty());
  number.front() ^= 1;
  write_file(file, bytes);
  const Result damaged = convert("verify " + file);
  EXPECT_EQ(damaged.code, 1);
  EXPECT_TRUE(says(damaged, "error: " + file)) << damaged.output;
  EXPECT_TRUE(says(convert(file + " b.onnx"), ".onnx"));
  EXPECT_EQ(convert(file).code, 1);
  EXPECT_FALSE(std::filesystem::exists("b.onnx"));
}

TEST(Convert, WritesTheChecksumBesideEitherFormat) {
  const TempFolder temp;
  save_pth(temp / "a.pth", layout_state());
  for (const char* name : {"b.safetensors", "b.pth"}) {
    const std::string out = (temp / name).string();
    const std::string files = (temp / "a.pth").string() + " " + out;
    EXPECT_EQ(convert(files).code, 0);
    EXPECT_EQ(sum_beside(out), "");
    EXPECT_EQ(convert("--sha256 " + files).code, 0);
    EXPECT_EQ(sum_beside(out), sha256_file(out));
  }
}

TEST(Convert, ChecksAFileAgainstTheChecksumInItsName) {
  TERN_REQUIRE_DATA(data);
  const std::filesystem::path file = data / "weights/resnet20-12fca82f.th";
  const Result good = convert("verify " + file.string());
  EXPECT_EQ(good.code, 0);
  EXPECT_TRUE(says(good, "SHA-256 12fca82f0bebc413")) << good.output;
  EXPECT_TRUE(says(good, "as its name says")) << good.output;
  EXPECT_TRUE(
      says(good, "97 tensors read from a file without checksums, 0 values"))
      << good.output;

  const TempFolder temp;
  std::filesystem::copy_file(file, temp / "resnet20-22fca82f.th");
  const Result bad =
      convert("verify " + (temp / "resnet20-22fca82f.th").string());
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(says(bad, "the SHA-256 begins with 22fca82f")) << bad.output;
}

}  // namespace
}  // namespace tern::convert_test
