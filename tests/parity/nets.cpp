#include "tern/tests/parity/nets.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/parity/fixture.h"

namespace tern::test {

namespace {

using Params = std::vector<torch::Tensor>;

torch::Tensor joined(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.detach().flatten());
  return torch::cat(flat);
}

template <class Torch, class Tern, class Options>
std::unique_ptr<torch::optim::Optimizer>
make(Library library, Params params, const Options& options) {
  if (library == Library::tern) {
    return std::make_unique<Tern>(std::move(params), options);
  }
  return std::make_unique<Torch>(std::move(params), options);
}

}  // namespace

torch::nn::Sequential new_net(const torch::Tensor& weights) {
  torch::nn::Sequential net(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3).bias(false)),
      torch::nn::BatchNorm2d(3),
      torch::nn::ReLU(),
      torch::nn::Flatten(),
      torch::nn::Linear(12, 8),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
      torch::nn::Tanh(),
      torch::nn::Linear(8, 3));
  const torch::NoGradGuard no_grad;
  int64_t begin = 0;
  for (torch::Tensor& param : net->parameters()) {
    const int64_t end = begin + param.numel();
    param.copy_(weights.slice(0, begin, end).view_as(param));
    begin = end;
  }
  EXPECT_EQ(begin, weights.numel());
  return net;
}

World::World(const nlohmann::json& fixture)
    : images(decode(fixture.at("images"))) {
  for (const auto& net : fixture.at("nets")) weights.push_back(decode(net));
  std::vector<torch::Tensor> rows;
  for (const auto& row : fixture.at("labels")) {
    rows.push_back(torch::tensor(row.get<std::vector<int64_t>>()));
  }
  labels = torch::stack(rows);
}

std::vector<torch::nn::Sequential> World::new_nets() const {
  std::vector<torch::nn::Sequential> nets;
  for (const auto& each : weights) nets.push_back(new_net(each));
  return nets;
}

torch::Tensor loss_of(
    torch::nn::Sequential& net,
    const torch::Tensor& image,
    const torch::Tensor& label) {
  return torch::nn::functional::cross_entropy(net->forward(image), label);
}

Precision::Precision(const std::string& name) {
  if (name != "float32") guard.emplace(torch::kCPU, dtype_of(name));
}

std::unique_ptr<torch::optim::Optimizer> new_optimizer(
    const std::string& name,
    Library library,
    std::vector<torch::Tensor> params) {
  using torch::optim::SGDOptions;
  if (name == "sgd" || name == "sgd_l2") {
    auto options = SGDOptions(.1).momentum(.9);
    if (name == "sgd_l2") options.weight_decay(.05).nesterov(true);
    return make<torch::optim::SGD, optim::SGD>(library, params, options);
  }
  if (name == "adam") {
    const torch::optim::AdamOptions options(.01);
    return make<torch::optim::Adam, optim::Adam>(library, params, options);
  }
  EXPECT_EQ(name, "adamw");
  const auto options = torch::optim::AdamWOptions(.01).weight_decay(.1);
  return make<torch::optim::AdamW, optim::AdamW>(library, params, options);
}

void expect_the_run_of_python(
    const std::vector<torch::nn::Sequential>& nets,
    const std::vector<torch::Tensor>& losses,
    const std::vector<std::pair<double, int64_t>>& trace,
    const nlohmann::json& of_python) {
  EXPECT_TRUE(same(torch::stack(losses), decode(of_python.at("losses"))));
  EXPECT_EQ(
      trace,
      (of_python.at("trace").get<std::vector<std::pair<double, int64_t>>>()));
  ASSERT_EQ(nets.size(), of_python.at("parameters").size());
  for (size_t i = 0; i < nets.size(); ++i) {
    SCOPED_TRACE("net " + std::to_string(i));
    EXPECT_TRUE(
        same(parameters_of(nets[i]), decode(of_python["parameters"][i])));
    const auto buffers = nets[i]->named_buffers();
    EXPECT_TRUE(same(
        joined({buffers["1.running_mean"], buffers["1.running_var"]}),
        decode(of_python.at("running")[i])));
  }
}

torch::Tensor parameters_of(const torch::nn::Sequential& net) {
  return joined(net->parameters());
}

}  // namespace tern::test
