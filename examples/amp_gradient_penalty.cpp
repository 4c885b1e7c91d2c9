// %% [markdown]
// # A gradient penalty in mixed precision
//
// A gradient penalty adds the norm of the loss's gradient to the loss, which
// keeps the weights in flat regions of the loss. This requires gradients that
// can be differentiated again. They are computed from the scaled loss, so that
// they do not underflow in 16 bits, and divided by the scale before use. The
// program does this by hand and with the callback `GradientPenalty`.

// %%
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "options.h"

constexpr int64_t kSteps = 40;
constexpr double kRate = 0.02;

torch::nn::Sequential make_net(torch::Device device) {
  torch::manual_seed(1);
  torch::nn::Sequential net(
      torch::nn::Linear(16, 64),
      torch::nn::Tanh(),  // ReLU has no second derivative
      torch::nn::Linear(64, 1));
  net->to(device);
  return net;
}

// %% [markdown]
// ## By hand

// %%
torch::Tensor loss_of(
    torch::nn::Sequential& net,
    const torch::Tensor& x,
    const torch::Tensor& y) {
  const tern::AutocastGuard autocast(x.device());
  return torch::mse_loss(net->forward(x), y);
}

// Returns the joint norm of all `gradients / divisor`.
torch::Tensor norm_of(const tern::Tensors& gradients, double divisor) {
  tern::Tensors norms;
  for (const torch::Tensor& gradient : gradients) {
    norms.push_back((gradient / divisor).norm());
  }
  return torch::stack(norms).norm();
}

torch::nn::Sequential
by_hand(const torch::Tensor& x, const torch::Tensor& y, double weight) {
  auto net = make_net(x.device());
  tern::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(kRate));
  tern::GradScaler scaler({.device = x.device().type()});
  for (int64_t step = 0; step < kSteps; ++step) {
    torch::Tensor loss = loss_of(net, x, y);
    const tern::Tensors gradients = torch::autograd::grad(
        {scaler.scale(loss)},
        net->parameters(),
        /*grad_outputs=*/{},
        /*retain_graph=*/true,
        /*create_graph=*/true);
    {
      // These gradients belong to no optimizer, so they are unscaled by hand.
      const tern::AutocastGuard autocast(x.device());
      loss = loss + weight * norm_of(gradients, scaler.get_scale());
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  }
  return net;
}

// %% [markdown]
// ## With the Learner

// %%
torch::nn::Sequential
with_learner(const torch::Tensor& x, const torch::Tensor& y, double weight) {
  tern::DataBunch data;
  data.device = x.device();
  data.train = std::make_shared<tern::DataLoader>(
      std::make_shared<tern::TensorDataset>(
          tern::Tensors{x.cpu()},
          tern::Tensors{y.cpu()}),
      tern::DataLoaderOptions{.batch_size = x.size(0), .workers = 0});
  auto net = make_net(x.device());
  tern::Learner learn(
      data,
      net,
      {.optimizer =
           tern::optimizer<tern::optim::SGD>(torch::optim::SGDOptions(kRate)),
       .weight_decay = 0,
       .sink = tern::silent()});
  learn.to_amp({.scaler = tern::GradScalerOptions{}});
  learn.add<tern::GradientPenalty>(weight).fit(kSteps, kRate);
  return net;
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Trains with a gradient penalty in mixed precision")
      .read(argc, argv);

  // %% [markdown]
  // ## With and without the penalty

  // %%
  const torch::Device device = tern::DataBunch::default_device();
  torch::manual_seed(2);
  const torch::Tensor x = torch::randn({64, 16}).to(device);
  const torch::Tensor y = 0.25 * x.sum(1, true);

  const auto report = [&](const char* name, torch::nn::Sequential net) {
    const torch::Tensor loss = loss_of(net, x, y);
    const double norm =
        norm_of(torch::autograd::grad({loss}, net->parameters()), 1)
            .item<double>();
    fmt::print("{:20} {:>9.4f} {:>15.4f}\n", name, loss.item<double>(), norm);
    return norm;
  };
  fmt::print("{:20} {:>9} {:>15}\n", "", "loss", "gradient norm");
  report("before", make_net(device));
  const double plain = report("no penalty", by_hand(x, y, 0));
  const double hand = report("penalty by hand", by_hand(x, y, 0.1));
  const double learner = report("penalty, Learner", with_learner(x, y, 0.1));

  const bool holds = hand < plain && std::abs(learner / hand - 1) < 0.02;
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
