// %% [markdown]
// # Your own modules
//
// Custom modules with parameters, buffers and submodules, which the Learner
// trains like any other module. Based on "Encapsulate your model with Modules"
// in the tutorial Effective PyTorch.

// %%
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "../options.h"

// %% [markdown]
// ## A line, and a line with a kink

// %%
// y = a x + b. Registered parameters are trained, and all registered tensors
// are saved under their names.
struct LineImpl : torch::nn::Module {
  LineImpl()
      : a(register_parameter("a", torch::rand(1))),
        b(register_parameter("b", torch::rand(1))),
        largest(register_buffer("largest", torch::zeros({}))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    // A buffer is state without a gradient: here the largest x seen so far.
    if (is_training()) largest.copy_(torch::maximum(largest, x.max()));
    return a * x + b;
  }
  torch::Tensor a, b, largest;
};
TORCH_MODULE(Line);

// A line with a kink, built from the module above and LibTorch's modules.
struct BentLineImpl : torch::nn::Module {
  BentLineImpl()
      : line(register_module("line", Line())),
        bend(register_module(
            "bend",
            torch::nn::Sequential(
                torch::nn::Linear(1, 16),
                torch::nn::ReLU(),
                torch::nn::Linear(16, 1)))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return line->forward(x) + bend->forward(x);
  }
  Line line;
  torch::nn::Sequential bend;
};
TORCH_MODULE(BentLine);

void list(const tern::Model& model) {
  for (const tern::ModelTensor& p : model.parameters()) {
    fmt::print(
        "  parameter {:14} [{}]\n",
        p.name,
        fmt::join(p.tensor.sizes(), ", "));
  }
  for (const tern::ModelTensor& b : model.buffers()) {
    fmt::print("  buffer    {:14} = {:.3f}\n", b.name, b.tensor.item<double>());
  }
}

// 1000 samples of a curve, 800 for training and 200 for validation.
template <class Curve>
tern::DataBunch samples_of(const Curve& curve) {
  const torch::Tensor x = torch::rand({1000, 1}) * 2 - 1;
  const torch::Tensor y = curve(x) + 0.05 * torch::randn({1000, 1});
  const auto part = [&](int64_t begin, int64_t end) {
    return std::make_shared<tern::TensorDataset>(
        tern::Tensors{x.slice(0, begin, end)},
        tern::Tensors{y.slice(0, begin, end)});
  };
  return tern::DataBunch::create(
      part(0, 800),
      part(800, 1000),
      {.batch_size = 32, .workers = 0});
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Trains modules with parameters and buffers")
      .read(argc, argv);

  // %% [markdown]
  // ## Training the line
  //
  // The target is y = 5x + 3 plus noise with a standard deviation of 0.05.

  // %%
  torch::manual_seed(1);
  Line line;
  tern::Learner straight(
      samples_of([](const torch::Tensor& x) { return 5 * x + 3; }),
      line,
      {.weight_decay = 0});
  straight.fit(8, 0.3);
  const double a = line->a.item<double>(), b = line->b.item<double>();
  list(line);
  fmt::print("  a = {:.3f}, b = {:.3f}\n\n", a, b);

  // %% [markdown]
  // ## Training the line with a kink
  //
  // The target is the same line plus 4 |x|.

  // %%
  BentLine bent;
  tern::Learner kinked(
      samples_of(
          [](const torch::Tensor& x) { return 5 * x + 3 + 4 * x.abs(); }),
      bent,
      {.weight_decay = 0});
  kinked.fit(10, 0.03);
  list(bent);

  // The best straight line has the variance of 4 |x| as its loss: 16 / 12.
  const double loss = kinked.recorder().epochs().back().valid_loss;
  const bool holds =
      std::abs(a - 5) < 0.1 && std::abs(b - 3) < 0.1 && loss < 0.05;
  fmt::print(
      "Validation loss {:.3f}, where a straight line leaves {:.3f}: {}.\n",
      loss,
      16.0 / 12,
      holds ? "both were learned" : "not learned");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
