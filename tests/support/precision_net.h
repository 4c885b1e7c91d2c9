#pragma once

// A small network with a fault in its middle, for the precision audit.

#include <functional>
#include <memory>

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/tiny.h"

namespace tern::testing_support {

inline constexpr int64_t kWidth = 16;

// first -> `fault` -> last, each for 16 features.
struct NetImpl final : torch::nn::Module {
  using Fault = std::function<torch::Tensor(const torch::Tensor&)>;
  explicit NetImpl(Fault between) : fault(std::move(between)) {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(8, kWidth));
    last = register_module("last", torch::nn::Linear(kWidth, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last->forward(fault(first->forward(x)));
  }
  Fault fault;
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

inline DataBunch some_data(double scale = 1) {
  auto generator = at::detail::createCPUGenerator(5);
  const torch::Tensor x = torch::randn({64, 8}, generator) * scale;
  const torch::Tensor y = (x.sum(1) > 0).to(torch::kLong);
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(Tensors{x}, Tensors{y}),
      nullptr,
      {.batch_size = 32, .workers = 0});
  data.device = torch::kCPU;
  return data;
}

inline LearnerOptions options_with(Loss loss = {}, double lr = 1e-2) {
  return quiet(
      {.loss = std::move(loss),
       .optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1)),
       .lr = lr,
       .weight_decay = 0});
}

inline std::function<Model()> net(
    const NetImpl::Fault& fault,
    double first_scale = 1) {
  return [=]() -> Model {
    Net made(fault);
    const torch::NoGradGuard no_grad;
    made->first->weight.mul_(first_scale);
    return made;
  };
}

}  // namespace tern::testing_support
