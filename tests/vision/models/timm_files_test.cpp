// Files from timm in Tern's networks: outputs match timm's.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/weights/weights.h"
#include "tern/tests/support/numbers.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/vision/models/vision_arch.h"

namespace tern::timm_files_test {
namespace {

using testing_support::some;
using testing_support::weight;

// Returns the results of timm_files_fixture.py.
nlohmann::json network(const std::string& name) {
  static const auto fixture = nlohmann::json::parse(
      std::ifstream(in_tests_folder("vision/models/timm_files_fixture.json")));
  return fixture["networks"][name];
}

// timm's regnety_002, which torchvision lacks.
RegNet regnety_002(const RegNetOptions& options) {
  return RegNet(
      RegNetShape{{24, 56, 152, 368}, {1, 1, 4, 7}, /*group_width=*/8},
      options);
}

template <class Net, class Options>
void expect_timms_output(const std::string& name, Net (*make)(const Options&)) {
  const nlohmann::json python = network(name);
  StateDict state;
  int64_t index = 0;
  for (const auto& item : python["weights"]) {
    const auto key = item[0].get<std::string>();
    const auto shape = item[1].get<std::vector<int64_t>>();
    const bool is_count = key.ends_with("num_batches_tracked");
    state.insert(
        key,
        is_count ? torch::zeros(shape, torch::kLong)
                 : weight(key, shape, index));
    ++index;
  }
  const TempFolder temp;
  save_safetensors(temp / "timm.safetensors", state);

  Options options;
  options.num_classes = 10;
  Net net = make(options);
  net->to(torch::kDouble);
  Model model(net);
  const LoadReport report =
      VisionArch(make).load_pretrained(model, temp / "timm.safetensors");
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.skipped, std::vector<std::string>{});
  const torch::NoGradGuard no_grad;
  model.eval();
  const torch::Tensor output = model.forward({some({2, 3, 64, 48}, 3)})[0];
  const auto expected = torch::tensor(
      python["output"].get<std::vector<double>>(),
      torch::kDouble);
  const auto error = (output.flatten() - expected).abs().max();
  EXPECT_LE((error / expected.abs().max()).item<double>(), 1e-8);
}

TEST(TimmFiles, LoadIntoAnEfficientNet) {
  expect_timms_output("efficientnet_b0", efficientnet_b0);
}

TEST(TimmFiles, LoadIntoAMobileNetV3) {
  expect_timms_output("mobilenet_v3_small", mobilenet_v3_small);
}

TEST(TimmFiles, LoadIntoARegNet) {
  expect_timms_output("regnety_002", regnety_002);
}

}  // namespace
}  // namespace tern::timm_files_test
