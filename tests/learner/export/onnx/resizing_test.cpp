// Exports resizing for images of many sizes. check_onnx.py compares them in
// ONNX Runtime.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/export/onnx/onnx_graph.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::onnx_resizing_test {
namespace {

using onnx::Integers;
using testing_support::write_onnx_case;
using torch::Tensor;
namespace fs = std::filesystem;

class OnnxResizing : public testing::Test {
 protected:
  OnnxResizing() {
    const char* const shared = std::getenv("TERN_ONNX_FOLDER");
    folder_ = shared != nullptr ? fs::path(shared) : temp_.path();
    make_folders(folder_);
  }

  TempFolder temp_;
  fs::path folder_;
};

template <typename Function>
struct CallImpl : torch::nn::Module {
  explicit CallImpl(Function function) : call(function) {}
  Tensors forward(const Tensor& x) { return call(x); }
  Function call;
};

template <typename Function>
Model calling(Function function) {
  return std::make_shared<CallImpl<Function>>(function);
}

// A few of all sizes up to 64, and the sizes where fp32 rounding matters.
std::vector<std::pair<int64_t, int64_t>> pairs_of_sizes() {
  std::vector<std::pair<int64_t, int64_t>> pairs =
      {{1, 41}, {3, 41 * 3}, {18, 6}, {49, 7}, {7, 49}, {224, 75}, {41, 33}};
  for (int64_t from = 1; from <= 64; ++from) {
    for (int64_t k = 0; k < 8; ++k) {
      pairs.emplace_back(from, 1 + (from * 7 + k * 13) % 64);
    }
  }
  return pairs;
}

// Pixels with distinct values, at different positions in each sample.
Tensor counted(const Tensor& x, int64_t size) {
  const Tensor line = torch::arange(size, torch::kFloat).view({1, 1, 1, -1});
  return line + x.sum({1, 2, 3}, true);
}

TEST_F(OnnxResizing, SelectsTheSameNearestPixelsAsPyTorch) {
  for (const bool is_exact : {false, true}) {
    const Model model = calling([is_exact](const Tensor& x) -> Tensors {
      Tensors all;
      for (const auto& [from, to] : pairs_of_sizes()) {
        const Tensor image = counted(x, from);
        const Integers size = {1, to};
        all.push_back(
            is_exact ? torch::_upsample_nearest_exact2d(image, size)
                     : torch::upsample_nearest2d(image, size));
      }
      return {torch::cat(all, -1)};
    });
    write_onnx_case(
        folder_,
        is_exact ? "nearest_exact" : "nearest",
        model,
        {torch::randn({3, 1, 2, 2})});
  }
}

TEST_F(OnnxResizing, SelectsTheSameNearestPixelsByScale) {
  const Model model = calling([](const Tensor& x) -> Tensors {
    Tensors all;
    for (int64_t from = 1; from < 40; ++from) {
      for (const double scale : {0.3, 0.5, 0.7, 1.1, 1.15, 1.5, 1.7, 3.3}) {
        const auto to = static_cast<int64_t>(static_cast<double>(from) * scale);
        if (to == 0) continue;
        const std::vector<double> scales = {1, scale};
        const Tensor image = counted(x, from);
        all.push_back(torch::upsample_nearest2d(image, std::nullopt, scales));
        all.push_back(torch::upsample_bilinear2d(
            image,
            std::nullopt,
            /*align_corners=*/false,
            scales));
      }
    }
    return {torch::cat(all, -1)};
  });
  write_onnx_case(
      folder_,
      "resized_by_scale",
      model,
      {torch::randn({3, 1, 2, 2})},
      {},
      /*tolerance=*/1e-3);
}

// The graph computes the positions.
TEST_F(OnnxResizing, SelectsTheSameNearestPixelsForAnyImageSize) {
  const Model model = calling([](const Tensor& x) -> Tensors {
    const int64_t h = x.size(2), w = x.size(3);
    const std::vector<double> scales = {2, 1.5}, whole = {2, 3};
    return {
        torch::upsample_nearest2d(x, std::nullopt, whole),
        torch::upsample_nearest2d(x, {2 * h, 3 * w}),
        torch::upsample_nearest2d(x, {9, 4}),
        torch::upsample_nearest2d(torch::max_pool2d(x, 2), {h, w}),
        torch::upsample_nearest2d(x, std::nullopt, scales),
        torch::_upsample_nearest_exact2d(x, {5, w}),
        torch::upsample_nearest1d(x.flatten(2), 31),
        torch::upsample_bilinear2d(x, std::nullopt, false, scales)};
  });
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>(10, 7), {14, 22}}) {
    write_onnx_case(
        folder_,
        fmt::format("nearest_of_any_size_{}", h),
        model,
        {torch::randn({3, 2, h, w})},
        {.dynamic_size = true});
  }
}

}  // namespace
}  // namespace tern::onnx_resizing_test
