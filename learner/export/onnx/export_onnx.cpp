#include "tern/learner/export/onnx/export_onnx.h"

#include <memory>
#include <string>

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/check.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/export/fp32_weights.h"
#include "tern/learner/export/onnx/make_graph.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"

namespace tern {

void export_onnx(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const OnnxOptions& options) {
  TORCH_CHECK_VALUE(
      !example_inputs.empty() && model.module(),
      "[export_onnx] there is no example input, or the model is TorchScript; "
      "expected a batch and a module written in C++. Export the module that "
      "the TorchScript was created from.");
  // A trace does not include computations of other threads on other devices.
  model = model.with_module(model.module());
  const torch::NoGradGuard no_grad;
  const EvalModeGuard eval(model);
  const MergedLora merged(model);
  const KeptRandomState random(example_inputs[0].device());
  const onnx::TracedGraph traced =
      onnx::make_graph(model, example_inputs, options);
  const std::string bytes = traced.graph->serialize();
  AtomicFile file(path);
  file.write(bytes);
  file.commit_with_sum(options.sha256_file);
}

void Learner::export_onnx(
    const std::filesystem::path& path,
    const Tensors& example_inputs) {
  export_onnx(path, example_inputs, OnnxOptions{});
}

void Learner::export_onnx(
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const OnnxOptions& options) {
  const Fp32Weights fp32(*this);
  const Tensors inputs = to_device(example_inputs, data().device);
  tern::export_onnx(model(), path, inputs, options);
}

}  // namespace tern
