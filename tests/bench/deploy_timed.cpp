// Tern's side of the comparisons `deploy_*`: a Predictor answers one image or
// several at 224 px, in fp32. Writes its time as JSON for the runner, and the
// network as NET.onnx, which peers/deploy_python.py reads.
#include <exception>
#include <fstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/utils.h>

#include "tern/learner/export/export_model.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/predict/predictor.h"

int main(int argc, char** argv) try {
  std::string net, json;
  int64_t batch = 1;
  int steps = 15;
  CLI::App app{"Times the answers of a Predictor"};
  app.add_option("--net", net)
      ->required()
      ->check(CLI::IsMember({"resnet18", "resnet50"}));
  app.add_option("--batch", batch);
  app.add_option("--steps", steps);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  torch::manual_seed(1);
  const tern::ResNetOptions options;
  tern::Model model =
      net == "resnet18" ? tern::resnet18(options) : tern::resnet50(options);
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
  const auto predictor = tern::Predictor::load(file, {.device = torch::kCPU});
  std::ofstream(json) << fmt::format(
      "{{\"seconds\": {}}}\n",
      tern::bench::median_seconds(steps, [&] { predictor.answer({images}); }));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "deploy_timed: {}\n", error.what());
  return 1;
}
