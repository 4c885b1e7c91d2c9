#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/stir.h"

namespace tern::testing_support {

/// Writes NAME.onnx, exported with the first sample of `inputs`, and NAME.pth
/// with the model's outputs for the first sample and for all samples.
/// check_onnx.py compares them with ONNX Runtime's outputs.
/// \param given   The inputs of the file, if they differ from `inputs`.
/// \param finish  Computes the file's outputs from the model's, if they differ;
///                the tolerance is then relative to the largest number.
inline void write_onnx_case(
    const std::filesystem::path& folder,
    const std::string& name,
    Model model,
    const Tensors& inputs,
    const OnnxOptions& options = {},
    double tolerance = 1e-4,
    const Tensors& given = {},
    const std::function<Tensors(const Tensors&)>& finish = nullptr) {
  const torch::NoGradGuard no_grad;
  model.eval();
  Tensors example;
  for (const torch::Tensor& x : inputs) {
    // Smaller, where that must not matter.
    const int64_t height = x.dim() == 4 ? x.size(2) : 0;
    const bool is_cut = options.dynamic_size && x.dim() == 4;
    const torch::Tensor first = x.slice(0, 0, 1);
    example.push_back(is_cut ? first.slice(2, 0, height / 2) : first);
  }
  export_onnx(model, folder / (name + ".onnx"), example, options);
  StateDict expected;
  expected.insert(
      finish ? "relative" : "tolerance",
      torch::scalar_tensor(tolerance));
  for (const int64_t size : {int64_t{1}, inputs[0].size(0)}) {
    const auto first = [&](const Tensors& all) {
      Tensors part;
      for (const torch::Tensor& x : all) part.push_back(x.slice(0, 0, size));
      return part;
    };
    const auto add = [&](const char* what, const Tensors& tensors) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        expected.insert(
            fmt::format("{}.{}.{}", size, what, i),
            tensors[i].contiguous());
      }
    };
    add("input", first(given.empty() ? inputs : given));
    const Tensors outputs = model.forward(first(inputs));
    add("output", finish ? finish(outputs) : outputs);
  }
  save_pth(folder / (name + ".pth"), expected);
}

}  // namespace tern::testing_support
