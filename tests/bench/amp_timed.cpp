// One mixed-precision job for ./dev bench peers: a training step under
// autocast, or the optimizer side of one. Writes its times as JSON for the
// runner; peers/amp_torch.py does the same in Python.
#include <fstream>

#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include "tern/data/support/memory.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/bench/checkerboard_net.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/cnn/resnet.h"

namespace {

using torch::Tensor;

// Forward and loss in bfloat16, with a scaler as for half precision.
template <class Loss>
double train(
    int steps,
    const Loss& loss_of_batch,
    torch::optim::Optimizer& optimizer) {
  tern::GradScaler scaler({.device = torch::kCPU});
  return tern::bench::median_seconds(steps, [&] {
    Tensor loss;
    {
      const tern::AutocastGuard autocast(torch::kCPU);
      loss = loss_of_batch();
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  });
}

double resnet18(int steps) {
  tern::ResNet net = tern::resnet18();
  const Tensor x = torch::randn({16, 3, 128, 128});
  const Tensor y = torch::randint(1000, {16});
  tern::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9));
  return train(
      steps,
      [&] { return torch::nn::functional::cross_entropy(net->forward(x), y); },
      optimizer);
}

double checkerboard(int steps) {
  auto net = tern::bench::checkerboard_net();
  const Tensor x = torch::rand({1, 2, 256, 256});
  const Tensor y = torch::rand({1, 1, 256, 256}).round();
  tern::optim::Adam optimizer(
      net->parameters(),
      torch::optim::AdamOptions(1e-3));
  return train(
      steps,
      [&] { return torch::mse_loss(net->forward(x), y); },
      optimizer);
}

// Unscale, check, Adam and the 16-bit weights, on ResNet-50's parameters.
double optimizer_side(int steps) {
  std::vector<Tensor> masters, weights;
  for (const Tensor& p : tern::resnet50()->parameters()) {
    masters.push_back(p.detach().clone());
    weights.push_back(masters.back().to(torch::kBFloat16).requires_grad_());
  }
  tern::optim::Adam optimizer(masters, torch::optim::AdamOptions(1e-3));
  optimizer.set_weights(masters, weights);
  tern::GradScaler scaler({.device = torch::kCPU});
  scaler.scale(torch::ones({}));
  for (const Tensor& w : weights) w.mutable_grad() = torch::randn_like(w);
  return tern::bench::median_seconds(steps, [&] {
    scaler.step(optimizer);
    scaler.update();
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::string job, json;
  int steps = 10;
  CLI::App app{"Times one mixed-precision job"};
  app.add_option("--job", job)
      ->required()
      ->check(CLI::IsMember({"resnet18", "checkerboard", "optimizer"}));
  app.add_option("--steps", steps);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  tern::keep_freed_memory();  // as the Learner does on a CPU
  torch::manual_seed(1);
  const double seconds = job == "resnet18"       ? resnet18(steps)
                         : job == "checkerboard" ? checkerboard(steps)
                                                 : optimizer_side(steps);
  std::ofstream(json) << fmt::format("{{\"step_seconds\": {}}}\n", seconds);
  return 0;
}
