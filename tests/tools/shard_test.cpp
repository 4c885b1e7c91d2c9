#include <filesystem>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/run_program.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"

namespace tern {
extern const char* const
    kTernShard;  // a path, defined in a file that CMake writes
}

namespace tern::shard_tool_test {
namespace {

ProgramResult shard(const std::string& arguments) {
  return run_program(program_command(kTernShard) + " " + arguments);
}

TEST(Shard, WritesVerifiesAndLists) {
  const TempFolder temp;
  for (const char* name : {"cat/1.png", "cat/2.png", "dog/1.png"}) {
    write_image(temp / "images" / name);
  }
  const std::string images = (temp / "images").string();
  const std::string out = (temp / "out").string();
  const auto written =
      shard("write " + images + " " + out + " --max-samples 2");
  EXPECT_EQ(written.code, 0);
  EXPECT_TRUE(written.says("3 images of 2 classes in 2 shards"))
      << written.output;
  const auto listed = shard("list " + out + "/train-000001.tar");
  EXPECT_TRUE(listed.says("/00000002  png ")) << listed.output;
  EXPECT_TRUE(listed.says("1 sample\n")) << listed.output;
  EXPECT_TRUE(shard("verify " + out).says("2 shards verified"));
  EXPECT_EQ(run_program("cd " + out + " && sha256sum -c SHA256SUMS").code, 0);

  const auto again = shard("write " + images + " " + out);
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(again.says("error: ")) << again.output;
  EXPECT_TRUE(again.says("exists already")) << again.output;
}

TEST(Shard, ShufflesUnlessTheOrderIsKept) {
  const TempFolder temp;
  for (int i = 0; i < 8; ++i) {
    write_image(
        temp / "images" / (i < 4 ? "cat" : "dog") /
        (std::to_string(i) + ".png"));
  }
  const auto classes = [&](const std::string& out, const std::string& option) {
    shard("write " + (temp / "images").string() + " " + out + option);
    const auto listed = shard("list " + out + "/train-000000.tar");
    std::string letters;
    std::istringstream lines(listed.output);
    for (std::string line; std::getline(lines, line);)
      letters += line.substr(1, 1);
    return letters.substr(0, 8);
  };
  EXPECT_EQ(classes((temp / "kept").string(), " --keep-order"), "ccccdddd");
  EXPECT_NE(classes((temp / "drawn").string(), ""), "ccccdddd");
}

}  // namespace
}  // namespace tern::shard_tool_test
