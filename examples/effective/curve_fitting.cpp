// %% [markdown]
// # Fitting a curve
//
// Derivatives with autograd, and a curve fitted by gradient descent. Based on
// "PyTorch basics" in the tutorial Effective PyTorch.

// %%
#include <utility>
#include <vector>

#include <tern/tern.h>
#include <torch/csrc/autograd/autograd.h>

#include "../options.h"

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Fits a parabola by gradient descent")
      .read(argc, argv);

  // %% [markdown]
  // ## A derivative
  //
  // The derivative of g(u(x)) with u = x * x and g = -u is -2x.

  // %%
  const torch::Tensor at = torch::tensor(3.0, torch::requires_grad());
  const torch::Tensor g = -(at * at);
  const double slope = torch::autograd::grad({g}, {at})[0].item<double>();
  fmt::print("d(-x*x)/dx at x = 3: {}; by hand: {}\n\n", slope, -2 * 3);

  // %% [markdown]
  // ## A curve
  //
  // The samples are y = 5x^2 + 3 plus noise. The model is the parabola a x^2 +
  // b x + c with unknown coefficients. For x in -2..2 the three terms have
  // similar magnitudes; for x in -10..10 the gradient of a would be far larger
  // than the gradient of c.

  // %%
  torch::manual_seed(1);
  const auto sample = [] {
    const torch::Tensor x = torch::rand(100) * 4 - 2;
    return std::pair(x, 5 * x * x + 3 + 0.1 * torch::randn(100));
  };
  torch::Tensor w = torch::randn(3).requires_grad_();
  tern::optim::Adam optimizer({w}, torch::optim::AdamOptions(0.1));
  std::vector<double> steps, losses;
  fmt::print("step      loss       a       b       c\n");
  for (int64_t step = 0; step <= 400; ++step) {
    const auto [x, y] = sample();
    const torch::Tensor terms =
        torch::stack({x * x, x, torch::ones_like(x)}, 1);
    const torch::Tensor loss = torch::mse_loss(terms.mv(w), y);
    optimizer.zero_grad();
    loss.backward();
    steps.push_back(static_cast<double>(step));
    losses.push_back(loss.item<double>());
    if (step % 100 == 0) {
      fmt::print(
          "{:<5} {:>8.4f} {:>7.3f} {:>7.3f} {:>7.3f}\n",
          step,
          losses.back(),
          w[0].item<double>(),
          w[1].item<double>(),
          w[2].item<double>());
    }
    optimizer.step();
  }
  tern::save_plot(
      "loss.svg",
      {.title = "The loss, in powers of ten",
       .x_label = "step",
       .y_label = "mean squared error",
       .curves = {{"", steps, losses}},
       .log_y = true});
  const torch::Tensor truth = torch::tensor({5.f, 0.f, 3.f});
  const double off = (w.detach() - truth).abs().max().item<double>();
  fmt::print("The coefficients are off by {:.3f} at most.\n", off);
  return slope == -6 && off < 0.1 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
