#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/run_program.h"
#include "tern/tests/support/temp_folder.h"

namespace tern {
extern const char* const kTernWeights;  // a path, in a file that CMake writes
}

namespace tern::weights_test {
namespace {

ProgramResult weights(const std::string& arguments, const TempFolder& folder) {
  return run_program(
      program_command(kTernWeights) + " " + arguments + " --folder " +
      folder.path().string());
}

TEST(Weights, ListsNetworksAndWhichAreHere) {
  const TempFolder temp;
  const std::string file = "resnet18-f37072fd.pth";
  EXPECT_FALSE(weights("list", temp).says((temp / file).string()));
  write_file(temp / file, std::string_view("x"));
  const ProgramResult result = weights("list", temp);
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(result.says((temp / file).string())) << result.output;
  EXPECT_TRUE(result.says("swin_t               swin_t-704ceda3.pth"))
      << result.output;
}

TEST(Weights, VerifiesWhatIsHere) {
  const TempFolder temp;
  EXPECT_EQ(weights("verify", temp).code, 0);
  ProgramResult result = weights("verify resnet34", temp);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.says("resnet34-b627a593.pth")) << result.output;
  write_file(temp / "resnet34-b627a593.pth", std::string_view("x"));
  result = weights("verify", temp);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.says("its name expects it to begin with b627a593"))
      << result.output;
}

TEST(Weights, NamesTheNetworksThatItKnows) {
  const TempFolder temp;
  const ProgramResult result = weights("fetch vgg", temp);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.says("\"vgg\"")) << result.output;
  EXPECT_TRUE(result.says("resnet18, resnet34")) << result.output;
  EXPECT_EQ(weights("fetch", temp).code, 106);  // CLI11: a name is required
}

}  // namespace
}  // namespace tern::weights_test
