// Tern's side of the comparisons `network_*`: evaluation and a training step of
// one network. Writes its times and its memory as JSON for the runner;
// peers/networks_torch.py does the same in Python.
#include <fstream>
#include <map>

#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include "tern/data/support/memory.h"
#include "tern/learner/model.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/vision_arch.h"

namespace {

using torch::Tensor;

template <auto make>
tern::Model with_classifier() {
  return make({});
}

const std::map<std::string, tern::Model (*)()> kNetworks = {
    {"convnext_tiny", with_classifier<tern::convnext_tiny>},
    {"densenet121", with_classifier<tern::densenet121>},
    {"efficientnet_b0", with_classifier<tern::efficientnet_b0>},
    {"mobilenet_v3_large", with_classifier<tern::mobilenet_v3_large>},
    {"regnet_y_400mf", with_classifier<tern::regnet_y_400mf>},
    {"resnext50_32x4d", with_classifier<tern::resnext50_32x4d>},
    {"swin_t", with_classifier<tern::swin_t>},
    {"vit_b_32", with_classifier<tern::vit_b_32>}};

constexpr int64_t kImages = 4, kSide = 224;

double evaluate(tern::Model& model, const Tensor& images, int steps) {
  const torch::NoGradGuard no_grad;
  model.eval();
  return tern::bench::median_seconds(steps, [&] { model.forward({images}); });
}

double train(tern::Model& model, const Tensor& images, int steps) {
  const Tensor labels = torch::arange(kImages);
  std::vector<Tensor> weights;
  for (const auto& item : model.parameters()) weights.push_back(item.tensor);
  tern::optim::AdamW optimizer(weights, torch::optim::AdamWOptions(1e-4));
  model.train();
  return tern::bench::median_seconds(steps, [&] {
    torch::nn::functional::cross_entropy(model.forward({images})[0], labels)
        .backward();
    optimizer.step();
    optimizer.zero_grad();
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::string net, json;
  int steps = 5;
  bool is_cpu_time = false;
  CLI::App app{"Times evaluation and training of a network"};
  app.add_option("--net", net)->required()->check(CLI::IsMember(kNetworks));
  app.add_option("--steps", steps);
  app.add_option("--json", json)->required();
  app.add_flag("--cpu-time", is_cpu_time);
  CLI11_PARSE(app, argc, argv);
  if (is_cpu_time) tern::bench::used_clock = CLOCK_PROCESS_CPUTIME_ID;
  tern::keep_freed_memory();  // as the Learner does on a CPU
  torch::manual_seed(1);
  tern::Model model = kNetworks.at(net)();
  const Tensor images = torch::rand({kImages, 3, kSide, kSide})
                            .contiguous(torch::MemoryFormat::ChannelsLast);
  // The peak covers the whole process, so evaluation runs first.
  const double evaluation = evaluate(model, images, steps);
  const double evaluation_megabytes = tern::bench::peak_megabytes();
  const double step = train(model, images, steps);
  std::ofstream(json) << fmt::format(
      "{{\"evaluation_seconds\": {}, \"evaluation_megabytes\": {}, "
      "\"step_seconds\": {}, \"peak_megabytes\": {}}}\n",
      evaluation,
      evaluation_megabytes,
      step,
      tern::bench::peak_megabytes());
  return 0;
}
