// %% [markdown]
// # Callbacks
//
// Shows what callbacks add to training: a dry run, a list of the callbacks that
// act at each event of the loop, averaged weights, early stopping, logs and a
// profile. The dataset is two noisy half moons with some wrong labels.

// %%
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "options.h"

// %% [markdown]
// ## Two half moons

// %%
std::shared_ptr<tern::Dataset> half_moons(int64_t size, double wrong) {
  const torch::Tensor upper = torch::arange(size) % 2;
  const torch::Tensor angle = torch::rand({size}) * std::numbers::pi;
  const torch::Tensor sign = 1 - 2 * upper;
  const torch::Tensor x = torch::stack(
      {upper + sign * angle.cos(), 0.5 * upper - sign * angle.sin()},
      1);
  const torch::Tensor flipped = (torch::rand({size}) < wrong).to(torch::kLong);
  return std::make_shared<tern::TensorDataset>(
      tern::Tensors{x + 0.15 * torch::randn({size, 2})},
      tern::Tensors{(upper + flipped) % 2});
}

// %%
int main(int argc, char** argv) {
  tern::examples::Options("Trains on two half moons with many callbacks")
      .read(argc, argv);

  // %% [markdown]
  // ## Data and a Learner

  // %%
  tern::seed_everything(3);
  auto data = tern::DataBunch::create(
      half_moons(4096, /*wrong=*/0.1),
      half_moons(1024, /*wrong=*/0),
      {.batch_size = 32, .workers = 0});
  torch::nn::Sequential net(
      torch::nn::Linear(2, 64),
      torch::nn::ReLU(),
      torch::nn::Linear(64, 64),
      torch::nn::ReLU(),
      torch::nn::Linear(64, 2));
  tern::Learner learn(
      data,
      net,
      {.loss = tern::label_smoothing_cross_entropy(),
       .optimizer = tern::optimizer<torch::optim::SGD>(
           torch::optim::SGDOptions(0.5).momentum(0.9)),
       .metrics = {tern::accuracy()}});

  // %% [markdown]
  // ## A dry run
  //
  // `dry_run` trains and validates on a few batches, and then undoes their
  // changes. It reveals a wrong shape or a label out of range before the long
  // run.

  // %%
  tern::dry_run(learn, 2);

  // %% [markdown]
  // ## Training with seven callbacks

  // %%
  learn.add<tern::Ema>(0.99)
      .add<tern::EarlyStopping>({.monitor = "accuracy", .patience = 4})
      .add<tern::TerminateOnNaN>()
      .add<tern::ActivationStats>({.every = 20})
      .add<tern::CSVLogger>("history.csv")
      .add<tern::TensorBoard>("runs")  // tensorboard --logdir runs
      .add<tern::Profiler>({.trace = "trace.json"});
  tern::show_training_loop(learn);
  learn.fit(8, 0.3);

  // %% [markdown]
  // ## Results
  //
  // After `fit` the model holds the averaged weights.

  // %%
  const double averaged = learn.validate().metrics[0].value;
  const auto ema = learn.find<tern::Ema>();
  ema->restore(learn);
  learn.remove(*ema);
  const double last = learn.validate().metrics[0].value;
  fmt::print("accuracy: averaged {:.4f}, last step {:.4f}\n", averaged, last);

  learn.recorder().plot_losses("losses.svg");
  fmt::print("layer  fraction of activations near zero, first and last seen\n");
  for (const auto& layer : learn.find<tern::ActivationStats>()->activations()) {
    fmt::print(
        "{:<6} {:.2f}  {:.2f}\n",
        layer.name,
        layer.near_zero.front(),
        layer.near_zero.back());
  }
  return averaged > 0.95 && averaged >= last ? 0 : 1;
}
