#pragma once

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "tern/learner/model.h"
#include "tern/tests/support/tests_folder.h"

namespace tern {

/// Returns the results of fixture.py for a network of torchvision or fastai.
inline const nlohmann::json& model_fixture(const std::string& name) {
  static const auto fixture = nlohmann::json::parse(
      std::ifstream(in_tests_folder("vision/models/fixture.json")));
  return fixture["models"][name];
}

/// Fills weight number `index` like fixture.py.
inline void fill(torch::Tensor tensor, int64_t index) {
  const double n = static_cast<double>(tensor.numel());
  const auto wave = torch::cos(
      torch::arange(tensor.numel(), torch::kDouble) * 0.37 +
      static_cast<double>(index));
  const auto values =
      tensor.dim() > 1
          ? wave * std::sqrt(2 / (n / static_cast<double>(tensor.size(0))))
          : 1 + 0.1 * wave;
  tensor.copy_(values.reshape(tensor.sizes()));
}

/// Fills the weights, in the order of `state`, like fixture.py, and returns the
/// largest difference from Python's outputs, relative to the largest output.
inline double error_with_fixture_weights(
    Model model,
    const std::vector<ModelTensor>& state,
    const nlohmann::json& fixture) {
  const torch::NoGradGuard no_grad;
  int64_t index = 0;
  for (const ModelTensor& item : state) {
    if (item.tensor.is_floating_point()) fill(item.tensor, index);
    ++index;
  }
  model.eval();
  const auto shape = fixture["input"].get<std::vector<int64_t>>();
  const auto x =
      torch::sin(
          torch::arange(c10::multiply_integers(shape), torch::kDouble) * .01)
          .to(torch::kFloat)
          .reshape(shape);
  auto y = model.forward({x})[0].flatten().to(torch::kDouble);
  if (y.numel() > 100) y = y.slice(0, 0, y.numel(), 7);
  const auto expected = torch::tensor(
      fixture["output"].get<std::vector<double>>(),
      torch::kDouble);
  return ((y - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace tern
