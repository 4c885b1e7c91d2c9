#pragma once

// The results of matting_loss_fixture.py, and its inputs.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include <torch/types.h>

#include "tern/tests/support/tests_folder.h"

namespace tern::testing_support {

inline nlohmann::json matting_fixture() {
  const char* live = std::getenv("TERN_MATTING_LOSS");
  return nlohmann::json::parse(std::ifstream(
      live ? live
           : in_tests_folder("vision/matting/matting_loss_fixture.json")));
}

/// Returns numbers in 0..1, like `wave` in the script.
inline torch::Tensor wave(torch::IntArrayRef shape, double step, double start) {
  const torch::Tensor at =
      torch::arange(c10::multiply_integers(shape), torch::kDouble);
  return ((at * step + start).cos() * 0.7 + 0.5)
      .clamp(0, 1)
      .to(torch::kFloat)
      .reshape(shape);
}

/// Returns an alpha [1, 1, height, width], like `blob` in the script.
inline torch::Tensor
blob(int64_t height, int64_t width, double row, double column, double radius) {
  const torch::Tensor y =
      torch::arange(height, torch::kDouble).view({1, 1, -1, 1}) - row;
  const torch::Tensor x =
      torch::arange(width, torch::kDouble).view({1, 1, 1, -1}) - column;
  return (1.5 - (x * x + y * y).sqrt() / radius).clamp(0, 1).to(torch::kFloat);
}

}  // namespace tern::testing_support
