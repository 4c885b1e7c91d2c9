#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/model.h"
#include "tern/tests/support/numbers.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/vision/models/detection/anchors.h"

namespace tern::testing_support {

/// Returns the results of detection_fixture.py, stored or live.
inline const nlohmann::json& detection_fixture() {
  static const char* live = std::getenv("TERN_DETECTION");
  static const auto fixture = nlohmann::json::parse(std::ifstream(
      live
          ? live
          : in_tests_folder("vision/models/detection/detection_fixture.json")));
  return fixture;
}

/// Fills a state dict like the script.
inline void fill_as_python(const Model& model) {
  const torch::NoGradGuard no_grad;
  int64_t index = 0;
  for (const ModelTensor& item : model.state()) {
    const int64_t now = index++;
    torch::Tensor tensor = item.tensor;
    if (!tensor.is_floating_point()) continue;
    tensor.copy_(weight(item.name, tensor.sizes(), now));
  }
}

/// Expects the norms and products of the script's `products`.
inline void expect_products(
    const Tensors& tensors,
    const nlohmann::json& expected,
    double error) {
  const size_t step = expected.size() == tensors.size()
                          ? 1
                          : std::max<size_t>(1, tensors.size() / 16);
  for (size_t i = 0; i < expected.size(); ++i) {
    const torch::Tensor t = tensors.at(i * step).detach().to(torch::kDouble);
    const torch::Tensor others =
        some(t.sizes(), static_cast<int64_t>(i * step) + 1000);
    const double length = expected[i][0].get<double>();
    EXPECT_NEAR(t.norm().item<double>(), length, error * length + 1e-12) << i;
    EXPECT_NEAR(
        (t * others).sum().item<double>(),
        expected[i][1].get<double>(),
        error * length + 1e-12)
        << i;
  }
}

/// Returns maps of RetinaNet's levels, of which only the sizes are used.
inline Tensors empty_levels(int64_t height, int64_t width) {
  Tensors levels;
  for (const int64_t stride : {8, 16, 32, 64, 128}) {
    levels.push_back(torch::empty(
        {1, 1, (height + stride - 1) / stride, (width + stride - 1) / stride}));
  }
  return levels;
}

inline torch::Tensor retinanet_anchors(int64_t height, int64_t width) {
  AnchorGenerator generator(AnchorOptions::retinanet());
  return generator->forward(height, width, empty_levels(height, width));
}

/// Computes the CRC-32 of zlib.
inline uint32_t crc_of(const std::string& text) {
  uint32_t crc = ~0U;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) * 0xEDB88320U);
  }
  return ~crc;
}

}  // namespace tern::testing_support
