// %% [markdown]
// # One batch on several devices
//
// Runs `data_parallel` under one outer `AutocastGuard`. Autocast is a
// per-thread setting, and each replica runs in its own thread.
// `tern::data_parallel` passes the setting on to these threads, so that all
// replicas compute in the same dtype. With fewer than two GPUs the program uses
// one device twice.

// %%
#include <algorithm>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/cuda.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "options.h"

// The hidden activations of the replicas, which run concurrently.
std::mutex mutex;
std::vector<torch::Tensor> hidden_of_replicas;

// %% [markdown]
// ## A network that records the device and dtype of its replicas

// %%
// data_parallel copies the network with clone(), which Cloneable implements by
// calling reset().
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(32, 64));
    second = register_module("second", torch::nn::Linear(64, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = torch::relu(first->forward(x));
    {
      const std::lock_guard lock(mutex);
      hidden_of_replicas.push_back(hidden.detach());
    }
    return second->forward(hidden);
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

// %%
int main(int argc, char** argv) try {
  tern::examples::Options(
      "Computes one batch on several devices under autocast")
      .read(argc, argv);

  // %% [markdown]
  // ## The devices

  // %%
  const torch::Device device = tern::DataBunch::default_device();
  std::vector<torch::Device> devices;
  for (c10::DeviceIndex i = 0;
       device.is_cuda() && i < static_cast<int>(torch::cuda::device_count());
       ++i) {
    devices.emplace_back(torch::kCUDA, i);
  }
  if (devices.size() < 2) devices = {device, device};

  torch::manual_seed(1);
  Net net;
  net->to(devices[0]);
  const torch::Tensor x = torch::randn({64, 32}).to(devices[0]);
  const torch::Tensor y = torch::randn({64, 4}).to(devices[0]);

  // %% [markdown]
  // ## The same batch on one device and on all devices

  // %%
  // Returns the output and the gradients of one batch, on one device or on all.
  const auto run = [&](bool parallel) {
    net->zero_grad();
    hidden_of_replicas.clear();
    torch::Tensor pred, loss;
    {
      const tern::AutocastGuard autocast(devices[0]);
      pred = parallel ? tern::data_parallel(net, x, devices) : net->forward(x);
      loss = torch::mse_loss(pred, y);
    }
    loss.backward();
    for (const torch::Tensor& hidden : hidden_of_replicas) {
      fmt::print(
          "  {:>3} samples on {}, computed in {}\n",
          hidden.size(0),
          hidden.device().str(),
          c10::toString(hidden.scalar_type()));
    }
    tern::Tensors result{pred.detach().to(torch::kFloat)};
    for (const auto& parameter : net->parameters()) {
      result.push_back(parameter.grad().clone());
    }
    return result;
  };
  fmt::print("One device:\n");
  const tern::Tensors one = run(false);
  const torch::ScalarType type = hidden_of_replicas[0].scalar_type();
  fmt::print("{} replicas:\n", devices.size());
  const tern::Tensors all = run(true);

  // %% [markdown]
  // ## Comparison

  // %%
  bool holds = type != torch::kFloat && hidden_of_replicas.size() > 1;
  for (const torch::Tensor& hidden : hidden_of_replicas) {
    holds = holds && hidden.scalar_type() == type;
  }
  // The difference relative to the largest element. Each replica rounds the
  // gradients of its part of the batch to 16 bits, so they agree only to 8
  // (bf16) or 11 bits (fp16).
  const auto difference = [&](size_t i) {
    return ((one[i] - all[i]).abs().max() / one[i].abs().max()).item<double>();
  };
  double gradient_difference = 0;
  for (size_t i = 1; i < one.size(); ++i) {
    gradient_difference = std::max(gradient_difference, difference(i));
  }
  fmt::print(
      "Largest difference: outputs {:.2g}, gradients {:.2g}\n",
      difference(0),
      gradient_difference);
  holds = holds && difference(0) < 0.01 && gradient_difference < 0.02;
  fmt::print(
      "{}\n",
      holds ? "Every replica computes in the guard's dtype, and the results "
              "agree."
            : "The replicas differ from the single device.");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
