// %% [markdown]
// # Clipping gradients in mixed precision
//
// After `backward` the gradients still contain the loss scale: they are 65536
// times too large. Unscale them before clipping. This program does so by hand,
// and with the Learner's callback `GradientClip`.

// %%
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>

#include "options.h"

constexpr double kMaxNorm = 0.05;
constexpr double kScale = 65536;

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(
      torch::nn::Linear(8, 64),
      torch::nn::ReLU(),
      torch::nn::Linear(64, 1));
}

// The gradient norm before clipping, and how far the step moved the weights.
struct Step {
  double norm_seen, moved;
};

// %% [markdown]
// ## One clipped step

// %%
Step one_step(
    torch::Device device,
    const torch::Tensor& x,
    const torch::Tensor& y,
    bool unscale_first) {
  auto net = make_net();
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  tern::GradScaler scaler({.device = device.type(), .init_scale = kScale});
  const torch::Tensor before =
      torch::nn::utils::parameters_to_vector(net->parameters()).clone();

  torch::Tensor loss;
  {
    const tern::AutocastGuard autocast(device);
    loss = torch::mse_loss(net->forward(x), y);
  }
  scaler.scale(loss).backward();
  if (unscale_first) scaler.unscale_(optimizer);
  // Returns the norm before clipping, on the device.
  const torch::Tensor norm = tern::clip_grad_norm_(optimizer, kMaxNorm);
  scaler.step(optimizer);  // does not unscale a second time
  scaler.update();

  const torch::Tensor after =
      torch::nn::utils::parameters_to_vector(net->parameters());
  return {norm.item<double>(), (after - before).norm().item<double>()};
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Clips gradients in mixed precision")
      .read(argc, argv);

  // %% [markdown]
  // ## With and without `unscale_`

  // %%
  const torch::Device device = tern::DataBunch::default_device();
  torch::manual_seed(2);
  const torch::Tensor x = torch::randn({256, 8}), y = 0.2 * x.sum(1, true);

  fmt::print(
      "One step of SGD with learning rate 1, clipped at {}:\n",
      kMaxNorm);
  fmt::print("{:20} {:>14} {:>14}\n", "", "norm seen", "weights moved");
  const auto show = [&](const char* name, bool unscale_first) {
    const Step s = one_step(device, x.to(device), y.to(device), unscale_first);
    fmt::print("{:20} {:>14.4f} {:>14.3g}\n", name, s.norm_seen, s.moved);
    return s;
  };
  const Step right = show("unscale_, then clip", true);
  const Step wrong = show("clip only", false);
  const double ratio = wrong.norm_seen / right.norm_seen;
  fmt::print(
      "Without unscale_ the norm is {:.0f} times larger. The step then\n"
      "unscales the clipped gradients and moves {:.0f} times less.\n",
      ratio,
      right.moved / wrong.moved);

  // %% [markdown]
  // ## With the Learner
  //
  // `GradientClip` clips the unscaled gradients, with or without a loss scale.

  // %%
  const auto train = [&](bool mixed) {
    auto data = tern::DataBunch::create(
        std::make_shared<tern::TensorDataset>(
            tern::Tensors{x},
            tern::Tensors{y}),
        nullptr,
        {.batch_size = 32, .workers = 0});
    tern::Learner learn(data, make_net(), {.sink = tern::silent()});
    if (mixed) learn.to_amp({.scaler = tern::GradScalerOptions{}});
    auto clip = std::make_shared<tern::GradientClip>(kMaxNorm);
    double first = 0, largest = 0;
    tern::LambdaCallbackOptions look;
    look.on_step = [&](tern::Learner& l) {
      // Clipping at 1e9 changes no gradient; the call returns the norm.
      const double norm =
          tern::clip_grad_norm_(l.optimizer(), 1e9).item<double>();
      if (first == 0) first = clip->norm().item<double>();
      largest = std::max(largest, norm);
    };
    look.order = tern::callback_order::kGradientClip + 1;
    learn.add(clip).add<tern::LambdaCallback>(look).fit(2);
    fmt::print(
        "Learner, {:9} first norm {:.4f}; ",
        mixed ? "amp:" : "fp32:",
        first);
    fmt::print("largest after clipping {:.4f}\n", largest);
    return std::pair(first, largest);
  };
  const auto [fp32_first, fp32_largest] = train(false);
  const auto [amp_first, amp_largest] = train(true);

  const bool holds = std::abs(ratio / kScale - 1) < 0.01 &&
                     std::abs(right.moved / kMaxNorm - 1) < 0.01 &&
                     std::abs(amp_first / fp32_first - 1) < 0.05 &&
                     amp_largest < kMaxNorm * 1.001;
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
