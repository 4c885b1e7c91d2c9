#include "tern/learner/weights/onnx/export_onnx.h"

#include <c10/util/ScopeExit.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"
#include "tern/learner/weights/onnx/translator.h"
#include "tern/learner/weights/trace.h"

namespace tern {

namespace {

// Of the first or second trace. No dynamic size is a fixed multiple of another
// in both, so that each tells where it comes from.
Tensors traced_inputs(
    const Tensors& examples,
    const OnnxOptions& options,
    bool is_second) {
  Tensors inputs;
  for (torch::Tensor x : examples) {
    std::vector<int64_t> times(x.dim(), 1);
    if (options.dynamic_batch) {
      x = x.narrow(0, 0, 1);
      times[0] = is_second ? 5 : 2;
    }
    const bool is_larger = options.dynamic_size && is_second && x.dim() == 4;
    if (is_larger) std::tie(times[2], times[3]) = std::tuple(2, 3);
    x = x.repeat(times);
    if (options.preprocessing) x = x.permute({0, 2, 3, 1}).to(torch::kByte);
    inputs.push_back(x);
  }
  return inputs;
}

std::vector<std::string> names_of(
    const std::vector<std::string>& given,
    const char* what,
    size_t count) {
  TERN_CHECK_VALUE(
      given.empty() || given.size() == count,
      "[export_onnx] there are {} {}_names; expected {}, one for each of the "
      "model's {}s, or none.",
      given.size(),
      what,
      count,
      what);
  std::vector<std::string> names = given;
  for (size_t i = 0; names.size() < count; ++i) {
    names.push_back(count == 1 ? what : fmt::format("{}_{}", what, i));
  }
  return names;
}

std::string
onnx_of(Model& model, const Tensors& examples, const OnnxOptions& options) {
  const auto how = options.preprocessing.value_or(ImagePreprocessing());
  const auto by_channel = [&](const auto& values, double otherwise) {
    return values.empty() ? torch::full({}, otherwise, torch::kDouble)
                          : torch::tensor(values).view({-1, 1, 1});
  };
  // Made here: a trace does not see the numbers of a tensor that it makes.
  const torch::Tensor stddev = by_channel(how.stddev, 1);
  const torch::Tensor shift = (by_channel(how.mean, 0) / stddev)
                                  .to(examples[0].device(), torch::kFloat);
  const torch::Tensor scale =
      (1 / (255 * stddev)).to(examples[0].device(), torch::kFloat);
  const auto forward = [&](Tensors inputs) {
    for (torch::Tensor& x : inputs) {
      if (!options.preprocessing) break;
      x = x.permute({0, 3, 1, 2}).to(torch::kFloat) * scale - shift;
    }
    return model.forward(inputs);
  };
  const std::array traces = {
      trace(model, traced_inputs(examples, options, false), forward),
      trace(model, traced_inputs(examples, options, true), forward)};
  onnx::Translator onnx(traces, options.half);
  const auto results =
      onnx.run(names_of(options.input_names, "input", examples.size()));
  const auto names = names_of(options.output_names, "output", results.size());
  for (size_t i = 0; i < names.size(); ++i) onnx.output(names[i], results[i]);
  return onnx.serialize();
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
  const torch::NoGradGuard no_grad;
  const auto restore = c10::make_scope_exit(
      [&, was_training = model.is_training()] { model.train(was_training); });
  model.eval();
  const MergedLora merged(model);
  const std::string bytes = onnx_of(model, example_inputs, options);
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void export_onnx(
    Learner& learn,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const OnnxOptions& options) {
  const Fp32Weights fp32(learn);
  export_onnx(
      learn.model(),
      path,
      to_device(example_inputs, learn.data().device),
      options);
}

}  // namespace tern
