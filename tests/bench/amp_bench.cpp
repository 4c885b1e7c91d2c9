// Overhead of mixed precision besides the step itself. Exit code 1 if a goal is
// missed.
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "tern/data/support/memory.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/cnn/resnet.h"

namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using tern::bench::measure;
using tern::bench::report_times;

// Measures a bfloat16 step of ResNet-18 and the extra time with a GradScaler.
// The scaler is timed separately, because its millisecond would be lost in the
// noise of the step.
bool scaler_share() {
  tern::ResNet net = tern::resnet18();
  const Tensor x = torch::randn({16, 3, 128, 128});
  const Tensor y = torch::randint(1000, {16});
  tern::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(1e-6).momentum(0.9));
  const auto backward = [&] {
    Tensor loss;
    {
      const tern::AutocastGuard autocast(torch::kCPU);
      loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    }
    optimizer.zero_grad();
    loss.backward();
  };
  std::vector<double> steps;
  for (int i = 0; i < 11; ++i) {
    steps.push_back(tern::bench::seconds([&] {
      backward();
      optimizer.step();
    }));
  }
  const double step = tern::bench::median(steps);
  tern::GradScaler scaler({.device = torch::kCPU});
  const Tensor loss = torch::ones({});
  const auto m = measure(
      [&] {
        scaler.scale(loss);
        scaler.step(optimizer);
        scaler.update();
      },
      [&] { optimizer.step(); });
  const double share = (m.ours - m.theirs) / step;
  // At most 1% of the step.
  return tern::bench::report(
      "step_without_the_scalers_share",
      fmt::format("{:.2f} ms", (m.ours - m.theirs) * 1e3),
      fmt::format("{:.1f} ms", step * 1e3),
      1 - share,
      0.99);
}

// ResNet-50's parameters as bfloat16 weights with gradients, and fp32 master
// weights.
struct Parameters {
  Tensors masters, weights;

  Parameters() {
    for (const Tensor& p : tern::resnet50()->parameters()) {
      masters.push_back(p.detach().clone());
      weights.push_back(masters.back().to(torch::kBFloat16).requires_grad_());
      weights.back().mutable_grad() = torch::randn_like(weights.back());
    }
  }
};

// fastai v1's step with LibTorch's operations: check for overflow, copy the
// gradients to the master weights, unscale, run Adam, copy the master weights
// back.
void step_as_fastai_does(
    Parameters& p,
    torch::optim::Adam& optimizer,
    float scale) {
  const torch::NoGradGuard no_grad;
  for (const Tensor& w : p.weights) {
    const auto sum = w.grad().to(torch::kFloat).sum().item<float>();
    if (!std::isfinite(sum)) return;
  }
  for (size_t i = 0; i < p.weights.size(); ++i) {
    Tensor& grad = p.masters[i].mutable_grad();
    if (!grad.defined()) grad = torch::empty_like(p.masters[i]);
    grad.copy_(p.weights[i].grad());
    grad.div_(scale);
  }
  optimizer.step();
  for (size_t i = 0; i < p.weights.size(); ++i) {
    p.weights[i].copy_(p.masters[i]);
  }
}

bool optimizer_side() {
  Parameters ours, theirs;
  tern::optim::Adam fused(ours.masters, torch::optim::AdamOptions(1e-3));
  fused.set_weights(ours.masters, ours.weights);
  tern::GradScaler scaler({.device = torch::kCPU});
  scaler.scale(torch::ones({}));
  torch::optim::Adam plain(theirs.masters, torch::optim::AdamOptions(1e-3));
  const auto m = measure(
      [&] {
        scaler.step(fused);
        scaler.update();
      },
      [&] { step_as_fastai_does(theirs, plain, 65536); },
      15);
  return report_times("optimizer_side_vs_fastai_v1", m, 1);
}

}  // namespace

int main(int argc, char** argv) {
  tern::bench::read_arguments(argc, argv);
  tern::keep_freed_memory();
  torch::manual_seed(1);
  const bool share = scaler_share();
  const bool side = optimizer_side();
  return share && side ? 0 : 1;
}
