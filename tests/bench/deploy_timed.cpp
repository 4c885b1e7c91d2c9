// Tern's side of the comparisons `deploy_*`: a Predictor predicts one or
// several images of 224 px, in fp32 or bfloat16. Writes its time as JSON for
// the runner, and the network as NET.onnx, which peers/deploy_python.py reads.
#include <exception>
#include <fstream>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/utils.h>

#include "tern/learner/export/export_model.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/predict/predictor.h"

namespace {

template <auto make>
tern::Model with_classifier() {
  return make({});
}

const std::map<std::string, tern::Model (*)()> kNetworks = {
    {"resnet18", with_classifier<tern::resnet18>},
    {"resnet50", with_classifier<tern::resnet50>},
    {"convnext_tiny", with_classifier<tern::convnext_tiny>},
    {"efficientnet_b0", with_classifier<tern::efficientnet_b0>},
    {"mobilenet_v3_large", with_classifier<tern::mobilenet_v3_large>},
    {"vit_b_16", with_classifier<tern::vit_b_16>}};

}  // namespace

int main(int argc, char** argv) try {
  std::string net, json;
  int64_t batch = 1;
  int steps = 15;
  bool is_bfloat16 = false;
  CLI::App app{"Times the predictions of a Predictor"};
  app.add_option("--net", net)->required()->check(CLI::IsMember(kNetworks));
  app.add_option("--batch", batch);
  app.add_option("--steps", steps);
  app.add_flag("--bfloat16", is_bfloat16);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  torch::manual_seed(1);
  tern::Model model = kNetworks.at(net)();
  const torch::Tensor images = torch::rand({batch, 3, 224, 224});
  tern::export_onnx(model, net + ".onnx", {images.narrow(0, 0, 1)});
  const std::string file = net + ".safetensors";
  auto data = tern::DataBunch::create(
      std::make_shared<tern::TensorDataset>(
          tern::Tensors{images},
          tern::Tensors{torch::zeros({batch}, torch::kLong)}),
      nullptr,
      {.batch_size = 1});
  data.device = torch::kCPU;
  data.classes.reserve(1000);
  for (int i = 0; i < 1000; ++i) {
    data.classes.push_back(fmt::format("class {}", i));
  }
  tern::Learner(data, model, {.sink = tern::silent()}).export_model(file);
  const auto predictor = tern::Predictor::load(
      file,
      {.device = torch::kCPU,
       .precision = is_bfloat16 ? torch::kBFloat16 : torch::kFloat});
  std::ofstream(json) << fmt::format(
      "{{\"seconds\": {}}}\n",
      tern::bench::median_seconds(steps, [&] {
        predictor.predict_prepared({images});
      }));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "deploy_timed: {}\n", error.what());
  return 1;
}
