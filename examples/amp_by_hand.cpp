// %% [markdown]
// # Mixed precision by hand
//
// A training loop without the Learner. `AutocastGuard` covers the forward pass
// and the loss; `GradScaler` scales the loss, unscales the gradients and skips
// steps that overflow. The program prints the loss and the loss scale, and
// compares the final loss and the time with fp32.

// %%
#include <chrono>
#include <cmath>

#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "options.h"

constexpr int64_t kSteps = 51;

struct Result {
  double first_loss, last_loss, seconds;
};

// %% [markdown]
// ## The loop

// %%
Result train(torch::Device device, bool mixed) {
  torch::manual_seed(1);  // the same weights and data both times
  torch::nn::Sequential net(
      torch::nn::Linear(256, 512),
      torch::nn::ReLU(),
      torch::nn::Linear(512, 512),
      torch::nn::ReLU(),
      torch::nn::Linear(512, 16));
  net->to(device);
  const torch::Tensor x = torch::randn({256, 256}).to(device);
  const torch::Tensor y = torch::tanh(x.slice(1, 0, 16));

  torch::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9));
  // For fp32 the guard and the scaler are disabled and change nothing, so one
  // loop serves both precisions. The scale grows after 25 finite steps instead
  // of 2000, so that it grows in this short run.
  tern::GradScaler scaler(
      {.device = device.type(), .growth_interval = 25, .enabled = mixed});

  Result result{};
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < kSteps; ++step) {
    torch::Tensor pred, loss;
    {
      const tern::AutocastGuard autocast(device, {}, mixed);
      pred = net->forward(x);
      loss = torch::mse_loss(pred, y);
    }  // backward runs outside: it uses the dtypes of the forward pass
    scaler.scale(loss).backward();
    scaler.step(optimizer);  // unscales; skips the step on overflow
    scaler.update();
    optimizer.zero_grad();

    if (step == 0) {
      fmt::print(
          "{}: outputs are {}, the loss is {}, weights are {}\n"
          "  step      loss     scale\n",
          mixed ? "mixed" : "fp32",
          c10::toString(pred.scalar_type()),
          c10::toString(loss.scalar_type()),
          c10::toString(net->parameters()[0].scalar_type()));
    }
    if (step % 25 == 0) {
      result.last_loss = loss.item<double>();  // synchronizes
      if (step == 0) result.first_loss = result.last_loss;
      fmt::print(
          "{:>6} {:>9.6f} {:>9.0f}\n",
          step,
          result.last_loss,
          scaler.get_scale());
    }
  }
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options(
      "Trains in mixed precision by hand, without the Learner")
      .read(argc, argv);
  const torch::Device device = tern::DataBunch::default_device();

  // %% [markdown]
  // ## fp32 and mixed precision

  // %%
  fmt::print("On {}.\n\n", device.str());
  const Result fp32 = train(device, false);
  fmt::print("\n");
  const Result mixed = train(device, true);

  const double difference =
      std::abs(mixed.last_loss - fp32.last_loss) / fp32.last_loss;
  fmt::print(
      "\nfinal loss: fp32 {:.6f}, mixed {:.6f}; they differ by {:.1f} %\n"
      "time: fp32 {:.2f} s, mixed {:.2f} s; mixed takes {:.2f} times as long\n",
      fp32.last_loss,
      mixed.last_loss,
      100 * difference,
      fp32.seconds,
      mixed.seconds,
      mixed.seconds / fp32.seconds);
  const bool holds =
      difference < 0.1 && mixed.last_loss < 0.5 * mixed.first_loss;
  fmt::print(
      "{}\n",
      holds ? "Mixed precision trains as well as fp32."
            : "Mixed precision does not train as well as fp32.");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
