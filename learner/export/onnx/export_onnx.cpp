#include "tern/learner/export/onnx/export_onnx.h"

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/check.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/export/fp32_weights.h"
#include "tern/learner/export/onnx/onnx_graph.h"
#include "tern/learner/export/onnx/translate.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"

namespace tern {

namespace {

using Names = std::vector<std::string>;

// Of the first or second trace. No dynamic size is a fixed multiple of another
// in both, so that each tells where it comes from.
Tensors traced_inputs(Tensors inputs, const OnnxOptions& how, bool is_second) {
  for (torch::Tensor& x : inputs) {
    onnx::Integers times(x.dim(), 1);
    if (how.dynamic_batch) x = x.narrow(0, 0, 1);
    if (how.dynamic_batch) times[0] = is_second ? 5 : 2;
    const bool is_larger = how.dynamic_size && is_second && x.dim() == 4;
    x = x.repeat(is_larger ? onnx::Integers{times[0], 1, 2, 3} : times);
    if (how.preprocessing) x = x.permute({0, 2, 3, 1}).to(torch::kByte);
  }
  return inputs;
}

Names names_of(Names names, const char* what, size_t count, Names& taken) {
  const size_t n = names.size();
  TORCH_CHECK_VALUE(
      n == 0 || n == count,
      fmt::format("[export_onnx] {} {}_names; expected {}.", n, what, count));
  for (size_t i = 0; names.size() < count; ++i) {
    names.push_back(count == 1 ? what : fmt::format("{}_{}", what, i));
  }
  for (const std::string& name : names) {
    TERN_CHECK_VALUE(
        name.find_first_not_of("0123456789") != name.npos &&
            std::ranges::count(taken, name) == 0,
        "[export_onnx] an {0} is called \"{1}\"; expected a word that no "
        "other one, and no weight, has. Set {0}_names.",
        what,
        name);
    taken.push_back(name);
  }
  return names;
}

}  // namespace

void export_onnx(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const OnnxOptions& options) {
  TORCH_CHECK_VALUE(
      !example_inputs.empty() && model.module(),
      "[export_onnx] there is no example input, or the model is TorchScript; "
      "expected a batch and a module of C++. Export the module that the "
      "TorchScript was made of.");
  // A trace does not see what other threads compute for other devices.
  model = model.with_module(model.module());
  const torch::NoGradGuard no_grad;
  const EvalModeGuard eval(model);
  const MergedLora merged(model);
  // Made here: a trace does not see the numbers of a tensor that it makes.
  const auto how = options.preprocessing.value_or(ImagePreprocessing());
  const auto by_channel = [&](const auto& values, double otherwise) {
    const auto all = values.empty() ? torch::full({1}, otherwise)
                                    : torch::tensor(values, torch::kFloat);
    return 255 * all.view({-1, 1, 1}).to(example_inputs[0].device());
  };
  const auto mean = by_channel(how.mean, 0), stddev = by_channel(how.stddev, 1);
  size_t results = 0;
  const auto forward = [&](Tensors inputs) {
    for (torch::Tensor& x : inputs) {
      if (!options.preprocessing) break;
      x = (x.permute({0, 3, 1, 2}).to(torch::kFloat) - mean) / stddev;
    }
    Tensors outputs = model.forward(inputs);
    results = outputs.size();
    return outputs;
  };
  const bool half = options.half, decompose = options.decompose_layer_norm;
  onnx::OnnxGraph first(nullptr, half, decompose);
  onnx::OnnxGraph second(&first, half, decompose);
  for (onnx::OnnxGraph* graph : {&first, &second}) {
    const bool is_second = graph == &second;
    const auto inputs = traced_inputs(example_inputs, options, is_second);
    const auto traced = frozen_graph(trace(model, inputs, forward));
    Names taken;  // by weights
    for (const ModelTensor& t : model.state()) taken.push_back(t.name);
    const auto in =
        names_of(options.input_names, "input", inputs.size(), taken);
    const auto out = names_of(options.output_names, "output", results, taken);
    onnx::translate(*traced, in, out, *graph);
  }
  const std::string bytes = second.serialize();
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
