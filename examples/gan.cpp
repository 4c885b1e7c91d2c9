// %% [markdown]
// # A generative adversarial network
//
// A generator creates digits from noise, and a discriminator distinguishes them
// from real digits. Each network has its own loss and optimizer. The program
// draws generated digits in `gan_digits.png`.

// %%
#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "options.h"
#include "support/synthetic_digits.h"

namespace nn = torch::nn;

// %% [markdown]
// ## Two networks in one module

// %%
struct GanImpl : nn::Module {
  nn::Sequential generator = register_module(
      "generator",
      nn::Sequential(
          nn::Linear(64, 256),
          nn::BatchNorm1d(256),
          nn::LeakyReLU(),
          nn::Linear(256, 784),
          nn::Tanh()));
  nn::Sequential discriminator = register_module(
      "discriminator",
      nn::Sequential(
          nn::Linear(784, 256),
          nn::LeakyReLU(),
          nn::Linear(256, 1)));

  // Returns images [N, 1, 28, 28] in -1..1, generated from noise [N, 64].
  torch::Tensor forward(const torch::Tensor& noise) {
    return generator->forward(noise).view({-1, 1, 28, 28});
  }
  // Returns the discriminator's loss for images with the label `real`: 1 for
  // real images, 0 for generated images.
  torch::Tensor judge(const torch::Tensor& images, double real) {
    const torch::Tensor logits = discriminator->forward(images.flatten(1));
    return torch::binary_cross_entropy_with_logits(
        logits,
        torch::full_like(logits, real));
  }
};
TORCH_MODULE(Gan);

// %%
int main(int argc, char** argv) try {
  int64_t epochs = 20, batches = 0;
  tern::examples::Options app("Trains a generator of handwritten digits");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_number("--batches", batches, 0, 10'000, "batches per epoch; 0: all");
  app.read(argc, argv);

  // %% [markdown]
  // ## Real digits, in -1..1

  // %%
  tern::seed_everything(1);
  auto data = tern::mnist_data(
      tern::examples::mnist_or_digits(tern::urls::mnist),
      {.batch_size = 128});
  data.batch_transforms = {tern::normalize({0.5}, {0.5})};
  data.valid = nullptr;
  Gan gan;
  tern::Learner learn(data, gan, {.weight_decay = 0});

  // %% [markdown]
  // ## A loss and an optimizer for each network

  // %%
  const auto fakes = [&](const torch::Tensor& real) {
    return gan->forward(torch::randn({real.size(0), 64}, real.options()));
  };
  const auto discriminator_loss = [&](const tern::Batch& batch) {
    const torch::Tensor& real = batch.inputs[0];
    return gan->judge(real, 1) + gan->judge(fakes(real).detach(), 0);
  };
  const auto generator_loss = [&](const tern::Batch& batch) {
    return gan->judge(fakes(batch.inputs[0]), 1);
  };
  const auto adam = tern::optimizer<tern::optim::Adam>(
      torch::optim::AdamOptions().betas({0.5, 0.999}));
  learn.add<tern::MultiOptimizer>(
      {.parts = {
           {.name = "discriminator",
            .loss = discriminator_loss,
            .optimizer = adam,
            .lr = 2e-4},
           {.name = "generator",
            .loss = generator_loss,
            .optimizer = adam,
            .lr = 2e-4}}});

  // %% [markdown]
  // ## Mixed precision with one loss scale

  // %%
  learn.add<tern::LimitBatches>({.train = batches});
  learn.to_amp().fit(epochs);

  // %% [markdown]
  // ## Generated digits

  // %%
  const torch::NoGradGuard no_grad;
  const torch::Tensor digits = fakes(torch::empty({40, 1}, data.device));
  tern::save_image(
      "gan_digits.png",
      (digits.view({4, 10, 28, 28}).transpose(1, 2).reshape({112, 280}) + 1) /
          2);
  // Without training the images are gray; digits are mostly black.
  const double white = (digits.mean().item<double>() + 1) / 2;
  fmt::print("mean brightness: {:.2f}; MNIST has 0.13\n", white);
  return white < 0.3 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
