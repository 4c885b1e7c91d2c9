// %% [markdown]
// # Gradient accumulation in mixed precision
//
// Gradient accumulation takes one optimizer step for several small batches, to
// train with a batch size that does not fit into memory. The loss scale may
// change only between optimizer steps; otherwise the accumulated gradients
// would have different scales. This program accumulates by hand and with the
// callback `GradientAccumulation`, and compares both with training on large
// batches.

// %%
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>

#include "options.h"

// 11 batches of 8 samples: two accumulation windows of four batches and one of
// three.
constexpr int64_t kSamples = 88, kSmall = 8, kGroup = 4;

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(
      torch::nn::Linear(16, 64),
      torch::nn::ReLU(),
      torch::nn::Linear(64, 1));
}

torch::Tensor weights_of(const torch::nn::Sequential& net) {
  const torch::NoGradGuard no_grad;
  return torch::nn::utils::parameters_to_vector(net->parameters()).cpu();
}

// The scale doubles after every step, so that its changes are visible.
tern::GradScalerOptions scaler_options(torch::Device device) {
  return {.device = device.type(), .init_scale = 1024, .growth_interval = 1};
}

// %% [markdown]
// ## By hand
//
// The loop prints the loss scale of each small batch, and `|` after each
// optimizer step.

// %%
torch::Tensor
by_hand(torch::Device device, const torch::Tensor& x, const torch::Tensor& y) {
  auto net = make_net();
  net->to(device);
  tern::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  tern::GradScaler scaler(scaler_options(device));
  const int64_t batches = kSamples / kSmall;
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t group_begin = i / kGroup * kGroup;
    // The last window of the epoch has fewer batches.
    const int64_t group = std::min(kGroup, batches - group_begin);
    const auto xb = x.slice(0, i * kSmall, (i + 1) * kSmall).to(device);
    const auto yb = y.slice(0, i * kSmall, (i + 1) * kSmall).to(device);
    torch::Tensor loss;
    {
      const tern::AutocastGuard autocast(device);
      loss = torch::mse_loss(net->forward(xb), yb) / static_cast<double>(group);
    }
    fmt::print(" {:>5.0f}", scaler.get_scale());
    scaler.scale(loss).backward();
    if (i + 1 < group_begin + group) continue;
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    fmt::print(" |");
  }
  return weights_of(net);
}

// %% [markdown]
// ## With the callback

// %%
torch::Tensor with_learner(
    torch::Device device,
    const torch::Tensor& x,
    const torch::Tensor& y,
    int64_t batch_size,
    bool accumulate) {
  tern::DataBunch data;
  data.device = device;
  data.train = std::make_shared<tern::DataLoader>(
      std::make_shared<tern::TensorDataset>(tern::Tensors{x}, tern::Tensors{y}),
      tern::DataLoaderOptions{.batch_size = batch_size, .workers = 0});
  auto net = make_net();
  tern::Learner learn(
      data,
      net,
      {.optimizer =
           tern::optimizer<tern::optim::SGD>(torch::optim::SGDOptions(0.1)),
       .weight_decay = 0,
       .sink = tern::silent()});
  learn.to_amp({.scaler = scaler_options(device)});
  if (accumulate) {
    learn.add<tern::GradientAccumulation>({.batches = kGroup});
    tern::LambdaCallbackOptions look;
    look.on_batch_begin = [](tern::Learner& l) {
      fmt::print(" {:>5.0f}", l.state().scaler->get_scale());
    };
    look.on_step_end = [](tern::Learner& l) {
      if (!l.state().skip_step) fmt::print(" |");
    };
    learn.add<tern::LambdaCallback>(look);
  }
  learn.fit(1, 0.1);
  return weights_of(net);
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Accumulates gradients in mixed precision")
      .read(argc, argv);

  // %% [markdown]
  // ## Comparison with large batches

  // %%
  const torch::Device device = tern::DataBunch::default_device();
  torch::manual_seed(2);
  const torch::Tensor x = torch::randn({kSamples, 16}), y = x.sum(1, true);

  fmt::print("The scale at each small batch; | is a step.\nby hand:");
  const torch::Tensor hand = by_hand(device, x, y);
  fmt::print("\nLearner:");
  const torch::Tensor learner = with_learner(device, x, y, kSmall, true);
  const torch::Tensor large =
      with_learner(device, x, y, kSmall * kGroup, false);

  const double moved = (large - weights_of(make_net())).norm().item<double>();
  const double hand_off = (hand - large).norm().item<double>() / moved;
  const double learner_off = (learner - large).norm().item<double>() / moved;
  fmt::print("\n\nThree steps with batches of {} ", kSmall * kGroup);
  fmt::print("move the weights by {:.4f}.\nSmall batches are off by ", moved);
  fmt::print("{:.2f} % of that by hand, ", 100 * hand_off);
  fmt::print("by {:.2f} % with the Learner.\n", 100 * learner_off);
  return hand_off < 0.01 && learner_off < 0.01 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
