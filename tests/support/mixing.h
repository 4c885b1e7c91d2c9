#pragma once

#include <memory>
#include <vector>

#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>

#include "tern/tests/support/tiny.h"

namespace tern::testing_support {

/// 64 images [3, 8, 6] of two classes, in batches of 16.
inline DataBunch picture_data() {
  auto generator = at::detail::createCPUGenerator(3);
  const torch::Tensor y = torch::arange(64) % 2;
  const torch::Tensor x =
      torch::randn({64, 3, 8, 6}, generator) + y.view({-1, 1, 1, 1});
  const auto pictures = std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
  DataBunch data =
      DataBunch::create(pictures, pictures, {.batch_size = 16, .workers = 0});
  data.device = torch::kCPU;
  return data;
}

inline torch::nn::Sequential picture_net() {
  torch::manual_seed(5);
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)),
      torch::nn::AdaptiveAvgPool2d(1),
      torch::nn::Functional(
          static_cast<torch::Tensor (*)(const torch::Tensor&)>(
              [](const torch::Tensor& x) { return x.flatten(1); })),
      torch::nn::Linear(8, 2));
}

/// The training batches as a mixing callback changed them.
struct MixedBatches : Callback {
  struct Seen {
    torch::Tensor before, after, targets, outputs, loss;
  };

  void on_batch_begin(Learner& l) override {
    if (l.state().training) {
      seen.back().after = l.state().batch_data.inputs[0].clone();
      seen.back().targets = l.state().batch_data.targets[0].clone();
    } else {
      validated_with_maker |= static_cast<bool>(l.state().batch_loss);
    }
  }
  void on_backward_begin(Learner& l) override {
    seen.back().outputs = l.state().outputs[0].detach().clone();
  }
  void on_backward_end(Learner& l) override {
    seen.back().loss = l.state().loss;
  }
  int order() const override { return 1; }

  /// Records the batch before it is mixed.
  std::shared_ptr<Callback> first() {
    return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
        .on_batch_begin =
            [this](Learner& l) {
              if (!l.state().training) return;
              seen.emplace_back();
              seen.back().before = l.state().batch_data.inputs[0].clone();
            },
        .order = -1});
  }

  std::vector<Seen> seen;
  bool validated_with_maker = false;
};

}  // namespace tern::testing_support
