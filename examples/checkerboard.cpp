// %% [markdown]
// # A checkerboard
//
// A network of 1x1 convolutions learns the gray level of a pixel from its
// coordinates, in fp32 and then with `AutocastGuard` and `GradScaler`. The
// network is taken from the tutorial "Effective PyTorch". The program writes
// the target and the two learned images to
// `checkerboard_{target,fp32,mixed}.png`, and plots the losses in
// `checkerboard_loss.svg`.

// %%
#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <tern/data/support/memory.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include "options.h"

struct Result {
  std::vector<double> losses;
  double final_loss;  // mean of the last 5% of steps: the curve has spikes
  double seconds, peak_megabytes;
  torch::Tensor image;  // [size, size], 0..1
};

// %% [markdown]
// ## The network and its training loop

// %%
torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (const int64_t channels : {2, 256, 256}) {
    net->push_back(torch::nn::Conv2d(channels, 256, 1));
    net->push_back(torch::nn::BatchNorm2d(256));
    net->push_back(torch::nn::ReLU());
  }
  net->push_back(torch::nn::Conv2d(256, 1, 1));
  return net;
}

Result train(
    const torch::Tensor& coordinates,
    const torch::Tensor& target,
    int64_t steps,
    bool mixed) {
  const torch::Device device = target.device();
  const tern::MemoryMeter memory(device);
  auto net = make_net();
  net->to(device);
  tern::optim::Adam optimizer(net->parameters());  // learning rate 1e-3
  tern::GradScaler scaler({.device = device.type(), .enabled = mixed});

  tern::Tensors losses;
  torch::Tensor pred;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    torch::Tensor loss;
    {
      const tern::AutocastGuard autocast(device, {}, mixed);
      pred = net->forward(coordinates);
      loss = torch::mse_loss(pred, target);
    }
    losses.push_back(loss.detach());
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  }
  // Reading the losses synchronizes with the device, so it counts as training
  // time.
  const torch::Tensor all = torch::stack(losses).to(torch::kDouble).cpu();
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  const auto* first = all.const_data_ptr<double>();
  return {
      {first, first + steps},
      all.slice(0, -std::max<int64_t>(1, steps / 20)).mean().item<double>(),
      time.count(),
      static_cast<double>(memory.peak_bytes()) / 1e6,
      pred.detach()[0][0].to(torch::kFloat).cpu()};
}

// %%
int main(int argc, char** argv) try {
  const torch::Device device = tern::DataBunch::default_device();
  int64_t size = device.is_cuda() ? 512 : 128, steps = 500;
  tern::examples::Options app(
      "Learns a checkerboard in fp32 and in mixed precision");
  app.add_number("--size", size, 8, 4096, "width and height in pixels");
  app.add_number("--steps", steps, 1, 1'000'000);
  app.read(argc, argv);
  // Lets each step on a CPU reuse the memory of the previous one, as a Learner
  // does.
  if (device.is_cpu()) tern::keep_freed_memory();

  // %% [markdown]
  // ## The task
  //
  // The input is the row and column of a pixel, scaled to -1..1; the target is
  // its gray level.

  // %%
  const torch::Tensor line = torch::linspace(-1, 1, size);
  const auto coordinates =
      torch::stack(torch::meshgrid({line, line}, "ij")).unsqueeze(0).to(device);
  const torch::Tensor cell = (torch::arange(size) * 8).div(size, "floor");
  const torch::Tensor target = ((cell.unsqueeze(1) + cell.unsqueeze(0)) % 2)
                                   .to(device, torch::kFloat)
                                   .view({1, 1, size, size});
  tern::save_image("checkerboard_target.png", target[0][0]);

  // %% [markdown]
  // ## fp32 and mixed precision

  // %%
  fmt::print("{0} x {0} pixels, {1} steps, ", size, steps);
  fmt::print("on {}\n", device.str());
  fmt::print("       seconds  peak MB of tensors  first loss  final loss\n");
  tern::Plot plot{"Checkerboard", "step", "mean squared error", {}};
  const auto run = [&](const char* name, bool mixed) {
    Result r = train(coordinates, target, steps, mixed);
    fmt::print("{:5} {:>8.2f} {:>19.1f}", name, r.seconds, r.peak_megabytes);
    fmt::print(" {:>11.6f} {:>11.6f}\n", r.losses.front(), r.final_loss);
    tern::save_image(fmt::format("checkerboard_{}.png", name), r.image);
    std::vector<double> x(r.losses.size());
    std::iota(x.begin(), x.end(), 0);
    plot.curves.push_back({name, std::move(x), r.losses});
    return r;
  };
  const Result fp32 = run("fp32", false), mixed = run("mixed", true);
  tern::save_plot("checkerboard_loss.svg", plot);

  const bool has_learnt = mixed.final_loss < mixed.losses.front() &&
                          mixed.final_loss < 1.2 * fp32.final_loss;
  return has_learnt && mixed.peak_megabytes < fp32.peak_megabytes ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
