#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern::testing_support {

/// A network for a batch [N, 6, 8]. `forward` may use any of its layers.
struct BatchNetImpl : torch::nn::Module {
  using Forward = std::function<torch::Tensor(BatchNetImpl&, torch::Tensor)>;

  explicit BatchNetImpl(Forward forward) : forward_(std::move(forward)) {}
  torch::Tensor forward(const torch::Tensor& x) { return forward_(*this, x); }

  torch::nn::LSTM lstm = register_module(
      "lstm",
      torch::nn::LSTM(
          torch::nn::LSTMOptions(8, 16).num_layers(2).batch_first(true)));
  torch::nn::LSTM by_time = register_module(  // [T, N, 8]
      "by_time",
      torch::nn::LSTM(torch::nn::LSTMOptions(8, 16).bidirectional(true)));
  torch::nn::GRU gru = register_module(
      "gru",
      torch::nn::GRU(torch::nn::GRUOptions(8, 16).batch_first(true)));
  torch::nn::RNN rnn = register_module(
      "rnn",
      torch::nn::RNN(torch::nn::RNNOptions(8, 16).batch_first(true)));
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(8, 3));
  torch::nn::Linear all = register_module("all", torch::nn::Linear(48, 3));
  torch::Tensor state = register_parameter("state", torch::randn({1, 1, 16}));

 private:
  Forward forward_;
};

/// A network, and the operator, with its module, that depends on the batch
/// size.
struct BatchNet {
  std::string name;
  BatchNetImpl::Forward forward;
  std::string place = {};

  Model make() const {
    torch::manual_seed(5);
    Model model(std::make_shared<BatchNetImpl>(forward));
    model.eval();
    return model;
  }
};

/// Networks that use numbers derived from the batch size, which a trace would
/// hard-code. `place` is the operator that takes the number.
inline std::vector<BatchNet> nets_that_read_the_batch_size() {
  using torch::Tensor;
  return {
      {"lstm",
       [](auto& net, const Tensor& x) { return std::get<0>(net.lstm(x)); },
       "aten::lstm in its module lstm"},
      {"bidirectional lstm",
       [](auto& net, const Tensor& x) {
         return std::get<0>(net.by_time(x.transpose(0, 1))).transpose(0, 1);
       },
       "aten::lstm in its module by_time"},
      {"gru",
       [](auto& net, const Tensor& x) { return std::get<0>(net.gru(x)); },
       "aten::gru in its module gru"},
      {"rnn",
       [](auto& net, const Tensor& x) { return std::get<0>(net.rnn(x)); },
       "aten::rnn_tanh in its module rnn"},
      {"learned state",
       [](auto& net, const Tensor& x) {
         const Tensor state = net.state.expand({1, x.size(0), 16});
         return std::get<0>(net.gru(x, state.contiguous()));
       },
       "aten::gru in its module gru"},
      {"reshape",
       [](auto& net, const Tensor& x) {
         return net.all(x.reshape({x.size(0), -1}));
       },
       "aten::reshape"},
      {"shuffle",
       [](auto& net, const Tensor& x) {
         const auto parts = x.view({x.size(0), 6, 2, 4}).transpose(2, 3);
         return net.fc(parts.reshape(x.sizes()));
       },
       "aten::view"},
      {"zeros",
       [](auto& net, const Tensor& x) {
         return net.fc(torch::cat({x, torch::zeros({x.size(0), 1, 8})}, 1));
       },
       "aten::cat"},
      {"zeros in place",
       [](auto& net, const Tensor& x) {
         return net.fc(torch::zeros({x.size(0), 6, 8}).add_(x));
       },
       "aten::zeros"},
      {"arange",
       [](auto& net, const Tensor& x) {
         return net.fc(x) + torch::arange(x.size(0)).view({-1, 1, 1});
       },
       "aten::add"},
      {"mean",
       [](auto& net, const Tensor& x) {
         return net.fc(x - x.sum(0) / static_cast<double>(x.size(0)));
       },
       "aten::div"},
      {"mean of integers",
       [](auto& net, const Tensor& x) {
         return net.fc(x - x.sum(0) / x.size(0));
       },
       "aten::div"},
      {"rows",
       [](auto& net, const Tensor& x) {
         const Tensor rows = x.reshape({x.size(0) * x.size(1), 8});
         return net.fc(rows).view({x.size(0), x.size(1), 3});
       },
       "aten::reshape"},
      {"from the end",
       [](auto& net, const Tensor& x) {
         const Tensor twice = torch::cat({x, 2 * x});
         return net.fc(twice.slice(0, -x.size(0)));
       },
       "aten::slice"}};
}

/// Networks whose path depends on the batch size, or that use a number which is
/// not a multiple of it. `place` is the first such operator.
inline std::vector<BatchNet> nets_of_one_batch_size() {
  using torch::Tensor;
  return {
      {"loop",
       [](auto& net, const Tensor& x) {
         std::vector<Tensor> rows;
         for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(net.fc(x[i]));
         return torch::stack(rows);
       },
       "aten::stack"},
      {"halves",
       [](auto& net, const Tensor& x) {
         const int64_t half = x.size(0) / 2;
         return net.fc(torch::cat({x.slice(0, half), x.slice(0, 0, half)}));
       },
       "aten::slice"}};
}

/// Networks whose trace is valid for any batch size.
inline std::vector<BatchNet> nets_of_any_batch_size() {
  using torch::Tensor;
  return {
      {"reshape",
       [](auto& net, const Tensor& x) {
         return net.all(x.reshape({-1, 48}));
       }},
      {"shuffle",
       [](auto& net, const Tensor& x) {
         const auto parts = x.view({-1, 6, 2, 4}).transpose(2, 3);
         return net.fc(parts.reshape({-1, 6, 8}));
       }},
      {"zeros",
       [](auto& net, const Tensor& x) {
         return net.fc(torch::cat({x, torch::zeros_like(x)}, 1));
       }},
      {"expand",
       [](auto& net, const Tensor& x) {
         const Tensor token = net.state.flatten().slice(0, 0, 8);
         return net.fc(torch::cat({token.expand_as(x.slice(1, 0, 1)), x}, 1));
       }},
      {"numbers of other dimensions", [](auto& net, const Tensor& x) {
         return net.fc(x + torch::arange(x.size(1)).view({-1, 1}));
       }}};
}

/// A network that computes 32 samples at a time, which two small batches do not
/// reveal.
inline BatchNet net_of_chunks() {
  return {"chunks", [](auto& net, const torch::Tensor& x) {
            std::vector<torch::Tensor> parts;
            for (int64_t i = 0; i < x.size(0); i += 32) {
              parts.push_back(net.fc(x.slice(0, i, i + 32)));
            }
            return torch::cat(parts);
          }};
}

}  // namespace tern::testing_support
