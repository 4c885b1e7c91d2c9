#include "tern/learner/export/onnx/export_onnx.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <new>

#include <ATen/CPUGeneratorImpl.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/check.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/export/fp32_weights.h"
#include "tern/learner/export/onnx/check_graph.h"
#include "tern/learner/export/onnx/onnx_graph.h"
#include "tern/learner/export/onnx/translate.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"

namespace tern {

namespace {

using Names = std::vector<std::string>;

// A batch, and for images their sizes, of the first or second trace or of the
// check. No dynamic size is a fixed multiple of another in both traces, so that
// each tells where it comes from. Batches of 5 and 7 differ by less than heights
// and widths, however these are cut or padded, and so do their halves and thirds.
struct Sizes {
  int64_t batch;
  int64_t height = 1, width = 1;  // times the example's
  int64_t odd = 0;                // pixels more
};

constexpr Sizes kFirst = {.batch = 5};

// With one pixel more, what halves a size and doubles it is told from the size.
// Not every network takes that.
Sizes second_sizes(bool is_odd) {
  return {.batch = 7, .height = 2, .width = 3, .odd = is_odd ? 1 : 0};
}

torch::Tensor
resized(torch::Tensor x, const OnnxOptions& how, const Sizes& sizes) {
  if (how.dynamic_batch) {
    const auto rows = torch::arange(sizes.batch, x.device()) % x.size(0);
    x = x.index_select(0, rows);
  }
  if (!how.dynamic_size || x.dim() != 4) return x;
  const int64_t height = sizes.height * x.size(2) + sizes.odd;
  const int64_t width = sizes.width * x.size(3) + sizes.odd;
  return x.repeat({1, 1, sizes.height + 1, sizes.width + 1})
      .slice(2, 0, height)
      .slice(3, 0, width)
      .contiguous();
}

Tensors
traced_inputs(Tensors inputs, const OnnxOptions& how, const Sizes& sizes) {
  for (torch::Tensor& x : inputs) {
    if (how.dynamic_batch) x = x.narrow(0, 0, 1);
    x = resized(x, how, sizes);
    if (how.preprocessing) x = x.permute({0, 2, 3, 1}).to(torch::kByte);
  }
  return inputs;
}

// Samples that differ, so that one cannot stand for another.
Tensors
checked_inputs(Tensors inputs, const OnnxOptions& how, const Sizes& sizes) {
  auto random = at::detail::createCPUGenerator(/*seed_val=*/5);
  for (torch::Tensor& x : inputs) {
    x = resized(x, how, sizes);
    if (how.preprocessing) {
      const auto shape = x.permute({0, 2, 3, 1}).sizes().vec();
      x = torch::randint(256, shape, random, torch::kByte).to(x.device());
    } else if (x.is_floating_point()) {
      // An example of zeros tells nothing.
      if (!x.any().item<bool>()) x = torch::ones_like(x);
      const auto factors = torch::rand(x.sizes(), random) / 2 + 0.5;
      x = x * factors.to(x.options());
    } else if (how.dynamic_batch && x.dim() > 1) {
      x = x.clone();  // whole numbers stay those of the example
      for (int64_t i = 0; i < x.size(0); ++i) x[i].copy_(x[i].roll(i, -1));
    }
  }
  return inputs;
}

// Sizes that the traces do not have. The last ones are the traced ones, for a
// model that takes no others.
std::vector<Tensors> checked_samples(
    const Tensors& example,
    const OnnxOptions& how,
    const Sizes& traced) {
  std::vector<Tensors> all;
  const auto add = [&](const Sizes& sizes) {
    all.push_back(checked_inputs(example, how, sizes));
  };
  if (how.dynamic_batch || how.dynamic_size) {
    add({.batch = 2, .height = 3, .width = 2, .odd = traced.odd});
  }
  if (how.dynamic_batch) add({.batch = 1});
  all.push_back(traced_inputs(example, how, traced));
  return all;
}

bool takes(
    const std::function<Tensors(Tensors)>& forward,
    const Tensors& inputs) {
  try {
    forward(inputs);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

// Rounding of the model itself: in 16 bits, or by a GPU that multiplies fewer.
double tolerance_of(const Model& model, const Tensors& inputs) {
  Tensors all = inputs;
  for (const ModelTensor& t : model.state()) all.push_back(t.tensor);
  double tolerance = 1e-4;
  for (const torch::Tensor& x : all) {
    if (!x.is_cpu()) tolerance = std::max(tolerance, 1e-2);
    if (torch::isReducedFloatingType(x.scalar_type())) tolerance = 0.1;
  }
  return tolerance;
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
  const KeptRandomState random(example_inputs[0].device());
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
  Names out;
  std::unique_ptr<onnx::OnnxGraph> first, second;
  const auto make_graphs = [&](const Sizes& second_size) {
    const bool half = options.half, decompose = options.decompose_layer_norm;
    first = std::make_unique<onnx::OnnxGraph>(nullptr, half, decompose);
    second = std::make_unique<onnx::OnnxGraph>(first.get(), half, decompose);
    for (onnx::OnnxGraph* graph : {first.get(), second.get()}) {
      const Sizes& sizes = graph == first.get() ? kFirst : second_size;
      const auto inputs = traced_inputs(example_inputs, options, sizes);
      const auto traced = frozen_graph(trace(model, inputs, forward));
      Names taken;  // by weights
      for (const ModelTensor& t : model.state()) taken.push_back(t.name);
      const auto in =
          names_of(options.input_names, "input", inputs.size(), taken);
      out = names_of(options.output_names, "output", results, taken);
      onnx::translate(*traced, in, out, *graph);
    }
  };
  // A network may take multiples of a size alone.
  const bool is_odd =
      options.dynamic_size &&
      takes(
          forward,
          traced_inputs(example_inputs, options, second_sizes(true)));
  make_graphs(second_sizes(is_odd));
  second->remove_unused();
  onnx::check_graph(
      *second,
      out,
      checked_samples(example_inputs, options, second_sizes(is_odd)),
      forward,
      tolerance_of(model, example_inputs));
  const std::string bytes = second->serialize();
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
