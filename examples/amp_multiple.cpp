// %% [markdown]
// # Two models, two optimizers, one scaler
//
// Two models with two losses and two optimizers share one `GradScaler`. Each
// optimizer skips its step if its own gradients are not finite. The scale is
// updated once, after both steps. In the third step, this program injects an
// infinite gradient into the second model.

// %%
#include <limits>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "options.h"

const char* name_of(tern::StepResult result) {
  return result == tern::StepResult::stepped ? "stepped" : "skipped";
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Trains two models with one gradient scaler")
      .read(argc, argv);

  // %% [markdown]
  // ## Two models

  // %%
  const torch::Device device = tern::DataBunch::default_device();
  torch::manual_seed(1);
  torch::nn::Linear first(16, 4), second(16, 4);
  first->to(device);
  second->to(device);
  torch::optim::Adam first_optimizer(first->parameters(), 1e-3);
  torch::optim::SGD second_optimizer(second->parameters(), 1e-3);
  // A low scale, so that only the injected gradient overflows.
  tern::GradScaler scaler({.device = device.type(), .init_scale = 1024});

  // %% [markdown]
  // ## Four steps

  // %%
  bool holds = true;
  fmt::print("step  first    second   scale before  after\n");
  for (int64_t step = 0; step < 4; ++step) {
    const torch::Tensor x = torch::randn({32, 16}).to(device);
    const torch::Tensor y = torch::randn({32, 4}).to(device);
    torch::Tensor first_loss, second_loss;
    {
      const tern::AutocastGuard autocast(device);
      const torch::Tensor a = first->forward(x), b = second->forward(x);
      first_loss = torch::mse_loss(2 * a + 3 * b, y);
      second_loss = torch::mse_loss(3 * a - 5 * b, y);
    }
    // Both losses depend on both models, so the graph is needed twice.
    scaler.scale(first_loss).backward({}, /*retain_graph=*/true);
    scaler.scale(second_loss).backward();
    const bool inject = step == 2;
    if (inject) {
      second->weight.mutable_grad()[0][0] =
          std::numeric_limits<float>::infinity();
    }

    const torch::Tensor first_before = first->weight.detach().clone();
    const torch::Tensor second_before = second->weight.detach().clone();
    const double scale_before = scaler.get_scale();
    scaler.unscale_(first_optimizer);  // as for gradient clipping
    const auto first_result = scaler.step(first_optimizer);
    const auto second_result = scaler.step(second_optimizer);
    scaler.update();  // once, after both steps
    first_optimizer.zero_grad();
    second_optimizer.zero_grad();

    fmt::print(
        "{:<5} {:8} {:8} {:>12.0f} {:>6.0f}{}\n",
        step,
        name_of(first_result),
        name_of(second_result),
        scale_before,
        scaler.get_scale(),
        inject ? "   <- an infinite gradient in the second" : "");
    holds = holds && !torch::equal(first->weight, first_before) &&
            torch::equal(second->weight, second_before) == inject &&
            scaler.get_scale() == scale_before * (inject ? 0.5 : 1);
  }
  fmt::print(
      "{}\n",
      holds ? "The second model kept its weights bit for bit in that step, the "
              "first was\nupdated, and the scale was halved once."
            : "A step was wrongly run or skipped.");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
