#include "tern/learner/weights/weights.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/run_program.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {
extern const char* const
    kTernWeights;  // a path, defined in a file that CMake writes
}

namespace tern::weights_test {
namespace {

ProgramResult weights(const std::string& arguments, const TempFolder& folder) {
  return run_program(
      program_command(kTernWeights) + " " + arguments + " --folder " +
      folder.path().string());
}

TEST(Weights, ListsNetworksAndMarksDownloadedOnes) {
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

TEST(Weights, VerifiesDownloadedWeights) {
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

TEST(Weights, DownloadsOnceAndVerifiesThatTheNetworkLoads) {
  const TempFolder temp, authors;
  const std::string name = "mobilenet_v3_small-047dcff4.pth";
  const VisionArch arch("mobilenet_v3_small");
  save_pth(authors / name, Model(arch.make_body(3).module).state_dict());
  const auto bytes = read_file(authors / name);
  const std::string hash = sha256(bytes);
  HttpServer server([&](const HttpServer::Request& request) {
    return HttpServer::range({bytes.begin(), bytes.end()}, request.offset);
  });
  // A file whose bytes differ from the published ones.
  write_file(temp / (name + ".sha256"), hash + "  " + name + "\n");
  const std::string fetch =
      "fetch mobilenet_v3_small --mirror " + server.url("/weights");
  for (int i = 0; i < 2; ++i) {
    const ProgramResult result = weights(fetch, temp);
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_TRUE(
        result.says("mobilenet_v3_small: " + (temp / name).string() + "\n"))
        << result.output;
  }
  ASSERT_EQ(server.requests().size(), 1u);
  EXPECT_EQ(server.requests()[0].path, "/weights/" + name);
  EXPECT_EQ(read_file(temp / name), bytes);

  for (const char* const command : {"verify", "verify mobilenet_v3_small"}) {
    const ProgramResult result = weights(command, temp);
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_TRUE(result.says("mobilenet_v3_small: SHA-256 " + hash + ", "))
        << result.output;
  }
  // A file whose bytes do not match the hash in its name.
  const ProgramResult other =
      weights("fetch resnet18 --mirror " + server.url(""), temp);
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(other.says("expected a SHA-256 that begins with f37072fd"))
      << other.output;
}

TEST(Weights, ListsTheSupportedNetworks) {
  const TempFolder temp;
  const ProgramResult result = weights("fetch vgg", temp);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.says("\"vgg\"")) << result.output;
  EXPECT_TRUE(result.says("resnet18, resnet34")) << result.output;
  EXPECT_EQ(weights("fetch", temp).code, 106);  // CLI11: a name is required
}

}  // namespace
}  // namespace tern::weights_test
