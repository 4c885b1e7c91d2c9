// Tern's side of the comparisons `mixed_*`: a Learner trains a network at 224
// px in fp32, or in bfloat16 in one of three ways. Writes the median time of
// its steps and its memory as JSON for the runner; peers/mixed_torch.py does
// the same in Python.
#include <fstream>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/utils.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/learner.h"
#include "tern/learner/losses/losses.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"

namespace {

using torch::Tensor;

constexpr int64_t kSide = 224, kClasses = 10, kWarmUp = 3;

template <auto make>
tern::Model classifier() {
  return make({.num_classes = kClasses});
}

tern::Model unet() {
  return tern::DynamicUnet(
      tern::VisionArch(tern::resnet18),
      tern::DynamicUnetOptions{.outputs = kClasses});
}

const std::map<std::string, tern::Model (*)()> kNetworks = {
    {"resnet18", classifier<tern::resnet18>},
    {"resnet50", classifier<tern::resnet50>},
    {"convnext_tiny", classifier<tern::convnext_tiny>},
    {"vit_b_32", classifier<tern::vit_b_32>},
    {"unet_resnet18", unet}};

using Precision = void (*)(tern::Learner&);
const std::map<std::string, Precision> kPrecisions = {
    {"fp32", [](tern::Learner&) {}},
    {"amp", [](tern::Learner& learn) { learn.to_amp(); }},
    {"bf16", [](tern::Learner& learn) { learn.to_bf16(); }},
    {"bf16_alone", [](tern::Learner& learn) {
       learn.to_bf16(tern::MixedPrecisionOptions{.master_weights = false});
     }}};

/// Repeats one batch.
tern::DataBunch same_batch(int64_t batch, int64_t steps, bool is_segmentation) {
  const Tensor images = torch::rand({batch, 3, kSide, kSide})
                            .contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensor targets = is_segmentation
                             ? torch::randint(kClasses, {batch, kSide, kSide})
                             : torch::randint(kClasses, {batch});
  const auto samples = std::make_shared<tern::TensorDataset>(
      tern::Tensors{images},
      tern::Tensors{targets});
  std::vector<int64_t> again;
  for (int64_t i = 0; i < steps * batch; ++i) again.push_back(i % batch);
  auto data = tern::DataBunch::create(
      std::make_shared<tern::Subset>(samples, again),
      nullptr,
      {.batch_size = batch});
  data.device = torch::kCPU;
  return data;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string net, precision, json;
  int64_t batch = 16, steps = 9;
  CLI::App app{"Times a Learner's steps"};
  app.add_option("--net", net)->required()->check(CLI::IsMember(kNetworks));
  app.add_option("--precision", precision)
      ->required()
      ->check(CLI::IsMember(kPrecisions));
  app.add_option("--batch", batch);
  app.add_option("--steps", steps);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  torch::manual_seed(1);
  tern::Learner learn(
      same_batch(batch, kWarmUp + steps, net.starts_with("unet")),
      kNetworks.at(net)(),
      {.optimizer = tern::optimizer<tern::optim::AdamW>(),
       .sink = tern::silent()});
  kPrecisions.at(precision)(learn);
  double last = 0;
  std::vector<double> times;
  learn.add<tern::LambdaCallback>({.on_batch_end = [&](tern::Learner& l) {
    const double now = tern::bench::now();
    if (l.state().batch >= kWarmUp) times.push_back(now - last);
    last = now;
  }});
  learn.fit(1, 1e-4);
  std::ofstream(json) << fmt::format(
      "{{\"seconds\": {}, \"peak_megabytes\": {}}}\n",
      tern::bench::median(times),
      tern::bench::peak_megabytes());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "mixed_timed: {}\n", error.what());
  return 1;
}
