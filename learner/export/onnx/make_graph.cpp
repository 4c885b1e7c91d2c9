#include "tern/learner/export/onnx/make_graph.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/check_graph.h"
#include "tern/learner/export/onnx/translate.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"

namespace tern::onnx {

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
  int64_t multiple = 1;  // to which the example's are rounded up before

  int64_t height_for(int64_t example) const {
    return height * rounded_up(example) + odd;
  }
  int64_t width_for(int64_t example) const {
    return width * rounded_up(example) + odd;
  }
  int64_t rounded_up(int64_t x) const {
    return (x + multiple - 1) / multiple * multiple;
  }
};

constexpr Sizes kFirst = {.batch = 5};

// With one pixel more, what halves a size and doubles it is told from the size.
// Not every network takes that.
Sizes second_sizes(bool is_odd) {
  return {.batch = 7, .height = 2, .width = 3, .odd = is_odd ? 1 : 0};
}

// Odd, and so is each half rounded up, five times. A U-Net resizes what is not of
// its skip connection's size, which at such sizes is the case in all stages.
Sizes odd_halves(Sizes sizes) {
  sizes.multiple = 32;
  sizes.odd = 1;
  return sizes;
}

torch::Tensor
resized(torch::Tensor x, const OnnxOptions& how, const Sizes& sizes) {
  if (how.dynamic_batch) {
    const auto rows = torch::arange(sizes.batch, x.device()) % x.size(0);
    x = x.index_select(0, rows);
  }
  if (!how.dynamic_size || x.dim() != 4) return x;
  const int64_t height = sizes.height_for(x.size(2)),
                width = sizes.width_for(x.size(3));
  return x.repeat({1, 1, height / x.size(2) + 1, width / x.size(3) + 1})
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
  if (traced.odd > 0) add({.batch = 2, .height = 2, .width = 1});
  if (how.dynamic_batch || traced.multiple > 1) add({.batch = 1});
  if (traced.multiple > 1) {
    // The path of this size is another, and the example may be without numbers
    // below 0, as images are.
    Tensors negative = all.back();
    for (torch::Tensor& x : negative) {
      if (x.is_floating_point()) x = -x;
    }
    all.push_back(negative);
  }
  all.push_back(traced_inputs(example, how, traced));
  return all;
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

class GraphMaker {
 public:
  GraphMaker(Model model, const Tensors& inputs, const OnnxOptions& options)
      : model_(std::move(model)), inputs_(inputs), options_(options) {
    // Made here: a trace does not see the numbers of a tensor that it makes.
    const auto how = options.preprocessing.value_or(ImagePreprocessing());
    const auto by_channel = [&](const auto& values, double otherwise) {
      const auto all = values.empty() ? torch::full({1}, otherwise)
                                      : torch::tensor(values, torch::kFloat);
      return 255 * all.view({-1, 1, 1}).to(inputs[0].device());
    };
    mean_ = by_channel(how.mean, 0);
    stddev_ = by_channel(how.stddev, 1);
  }

  TracedGraph make() {
    // A network may take multiples of a size alone.
    const bool takes_odd_sizes =
        options_.dynamic_size &&
        takes(traced_inputs(inputs_, options_, second_sizes(true)));
    const Sizes second = second_sizes(takes_odd_sizes);
    TracedGraph made;
    try {
      made = traced_at(kFirst, second);
    } catch (const c10::ValueError&) {
      auto other =
          takes_odd_sizes ? traced_at_odd_halves(second) : std::nullopt;
      if (!other) throw;
      made = std::move(*other);
    }
    made.takes_odd_sizes = takes_odd_sizes;
    return made;
  }

 private:
  Tensors forward(Tensors inputs) {
    for (torch::Tensor& x : inputs) {
      if (!options_.preprocessing) break;
      x = (x.permute({0, 3, 1, 2}).to(torch::kFloat) - mean_) / stddev_;
    }
    return model_.forward(inputs);
  }

  bool takes(const Tensors& inputs) {
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

  TracedGraph traced_at(const Sizes& first, const Sizes& second) {
    const bool half = options_.half, decompose = options_.decompose_layer_norm;
    TracedGraph made;
    made.first = std::make_unique<OnnxGraph>(nullptr, half, decompose);
    made.graph = std::make_unique<OnnxGraph>(made.first.get(), half, decompose);
    add_trace(*made.first, first);
    const Names outputs = add_trace(*made.graph, second);
    made.graph->remove_unused();
    check_graph(
        *made.graph,
        outputs,
        checked_samples(inputs_, options_, second),
        [this](const Tensors& inputs) { return forward(inputs); },
        tolerance_of(model_, inputs_));
    return made;
  }

  /// The path of odd sizes may do for others too.
  std::optional<TracedGraph> traced_at_odd_halves(const Sizes& second) {
    try {
      return traced_at(odd_halves(kFirst), odd_halves(second));
    } catch (const c10::ValueError&) {
      return std::nullopt;
    }
  }

  /// \return The names of the outputs.
  Names add_trace(OnnxGraph& graph, const Sizes& sizes) {
    const Tensors inputs = traced_inputs(inputs_, options_, sizes);
    size_t results = 0;
    const auto traced =
        frozen_graph(trace(model_, inputs, [&](const Tensors& given) {
          Tensors outputs = forward(given);
          results = outputs.size();
          return outputs;
        }));
    Names taken;  // by weights
    for (const ModelTensor& t : model_.state()) taken.push_back(t.name);
    const Names in =
        names_of(options_.input_names, "input", inputs.size(), taken);
    Names out = names_of(options_.output_names, "output", results, taken);
    translate(*traced, in, out, graph);
    return out;
  }

  Model model_;
  const Tensors inputs_;
  const OnnxOptions options_;
  torch::Tensor mean_, stddev_;  // of bytes
};

}  // namespace

TracedGraph make_graph(
    Model model,
    const Tensors& example_inputs,
    const OnnxOptions& options) {
  return GraphMaker(std::move(model), example_inputs, options).make();
}

}  // namespace tern::onnx
