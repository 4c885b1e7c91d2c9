// %% [markdown]
// # Which precision?
//
// The precision audit finds out whether a network trains in 16 bits and, if
// not, which layers do not. This program audits a network that trains in 16
// bits, and a network that divides by small variances.

// %%
#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

// %% [markdown]
// ## A network that normalizes by hand

// %%
// Normalizes each channel of an image by its own variance. In fp16 the 1e-8
// rounds to 0, so it no longer prevents a division by 0 where a channel is
// constant.
struct NormalizedImpl : torch::nn::Module {
  NormalizedImpl() {
    first = register_module(
        "first",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).stride(2)));
    head = register_module("head", tern::simple_cnn({16, 16, 2}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = first->forward(x).relu();
    const torch::Tensor centered = y - y.mean({2, 3}, /*keepdim=*/true);
    const torch::Tensor variance = centered.square().mean({2, 3}, true);
    return head->forward(centered / (variance + 1e-8).sqrt());
  }
  torch::nn::Conv2d first{nullptr};
  torch::nn::Sequential head{nullptr};
};
TORCH_MODULE(Normalized);

// %%
int main(int argc, char** argv) {
  tern::examples::Options("Audits whether two networks train in 16 bits")
      .read(argc, argv);

  // %% [markdown]
  // ## A network that trains in 16 bits

  // %%
  tern::seed_everything(42);
  auto path = tern::examples::mnist_or_digits(tern::urls::mnist_sample);
  auto data = tern::ImageDataBunch::from_folder(path);
  auto learn = tern::Learner(data, tern::resnet18({.num_classes = 2}));
  tern::PrecisionAudit audit = learn.audit_precision();
  fmt::print("{}", audit.to_string());

  // %%
  auto normalized =
      tern::Learner(data, Normalized(), {.metrics = {tern::accuracy()}});
  audit = normalized.audit_precision();
  fmt::print("{}", audit.to_string());

  // %% [markdown]
  // ## Training as the audit recommends

  // %%
  audit.apply(normalized).fit(1);
}
