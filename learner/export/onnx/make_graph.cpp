#include "tern/learner/export/onnx/make_graph.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"
#include "tern/learner/detection_parts.h"
#include "tern/learner/export/onnx/add_detections.h"
#include "tern/learner/export/onnx/check_graph.h"
#include "tern/learner/export/onnx/translate.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"

namespace tern::onnx {

namespace {

using Names = std::vector<std::string>;

// The batch size and, for images, the image size of the first trace, the second
// trace or the check. No dynamic size is the same multiple of another dynamic
// size in both traces, so that each size identifies its origin. The batch sizes
// 5 and 7 differ by less than heights and widths do, even if the images are
// cropped or padded, and the same holds for halves and thirds of the sizes.
struct Sizes {
  int64_t batch;
  int64_t height = 1, width = 1;  // multiples of the example's size
  int64_t odd = 0;                // extra pixels
  int64_t multiple = 1;           // the example's is first rounded up to it

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

// An extra pixel distinguishes a size from a size that was halved and doubled.
// Not every network accepts such sizes.
Sizes second_sizes(bool is_odd) {
  return {.batch = 7, .height = 2, .width = 3, .odd = is_odd ? 1 : 0};
}

// Odd sizes whose halves, rounded up, are odd too, five times in a row. A U-Net
// resizes tensors that do not match their skip connection; at these sizes it
// does so in all stages.
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

// Samples differ, so that a mix-up of samples is detected.
Tensors
checked_inputs(Tensors inputs, const OnnxOptions& how, const Sizes& sizes) {
  auto random = at::detail::createCPUGenerator(/*seed_val=*/5);
  for (torch::Tensor& x : inputs) {
    x = resized(x, how, sizes);
    if (how.preprocessing) {
      const auto shape = x.permute({0, 2, 3, 1}).sizes().vec();
      x = torch::randint(256, shape, random, torch::kByte).to(x.device());
    } else if (x.is_floating_point()) {
      // A test with zeros would be meaningless.
      if (!x.any().item<bool>()) x = torch::ones_like(x);
      const auto factors = torch::rand(x.sizes(), random) / 2 + 0.5;
      x = x * factors.to(x.options());
    } else if (how.dynamic_batch && x.dim() > 1) {
      x = x.clone();  // integers remain the example's
      for (int64_t i = 0; i < x.size(0); ++i) x[i].copy_(x[i].roll(i, -1));
    }
  }
  return inputs;
}

// Inputs of sizes that differ from the traces. The last inputs have the traced
// sizes, for a model that accepts no other sizes.
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
    // The model takes a different path at this size, and the example may have
    // no numbers below 0, for example if it is an image in 0..1.
    Tensors negative = all.back();
    for (torch::Tensor& x : negative) {
      if (x.is_floating_point()) x = -x;
    }
    all.push_back(negative);
  }
  if (how.dynamic_size) {
    // Feature maps of the coarsest strides in use. With small examples they
    // have one position in both traces, which must not be assumed for all
    // sizes.
    constexpr int64_t kCoarsestStride = 128;
    const auto times = [&](int64_t dim) {
      int64_t least = kCoarsestStride;
      for (const torch::Tensor& x : example) {
        if (x.dim() == 4) least = std::min(least, x.size(dim));
      }
      return kCoarsestStride / least + 1;
    };
    const Sizes large = {
        .batch = 1,
        .height = times(2),
        .width = times(3),
        .odd = traced.odd,
        .multiple = traced.multiple};
    if (large.height > 3 || large.width > 2) add(large);
  }
  all.push_back(traced_inputs(example, how, traced));
  return all;
}

// Allows for the model's own rounding errors: in 16 bits, or on a GPU that
// multiplies with fewer bits.
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

Names default_names(const char* what, size_t count) {
  if (count == 1) return {what};
  Names names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(fmt::format("{}_{}", what, i));
  }
  return names;
}

// Returns the given names, or the `usual` names.
Names names_of(
    Names names,
    const char* what,
    const Names& usual,
    Names& taken) {
  TORCH_CHECK_VALUE(
      names.empty() || names.size() == usual.size(),
      fmt::format(
          "[export_onnx] {} {}_names; expected {}.",
          names.size(),
          what,
          usual.size()));
  if (names.empty()) names = usual;
  for (const std::string& name : names) {
    TERN_CHECK_VALUE(
        name.find_first_not_of("0123456789") != name.npos &&
            std::ranges::count(taken, name) == 0,
        "[export_onnx] an {0} is called \"{1}\"; expected a name that is not a "
        "number and that no other input, output or weight has. Set {0}_names.",
        what,
        name);
    taken.push_back(name);
  }
  return names;
}

// Additional outputs of a file with detections, used only for the check. No
// weight has these names.
const Names kRaw = {".boxes", ".logits"};

void check_options(const OnnxOptions& options) {
  TERN_CHECK_VALUE(
      options.detection || !options.nms,
      "[export_onnx] nms is true, but detection is not set; expected the "
      "options for decoding boxes. Set .detection, for example to "
      "learn.data().outputs[0].detection.");
  if (!options.detection) return;
  check_detection_options("export_onnx", *options.detection);
  TERN_CHECK_VALUE(
      options.detection->anchors_per_level.empty() || !options.dynamic_size,
      "[export_onnx] anchors_per_level is {{{}}} and dynamic_size is true; "
      "expected one of them, since the levels depend on the size. Leave "
      ".anchors_per_level empty, or set .dynamic_size = false.",
      fmt::join(options.detection->anchors_per_level, ", "));
}

class GraphMaker {
 public:
  GraphMaker(Model model, const Tensors& inputs, const OnnxOptions& options)
      : model_(std::move(model)), inputs_(inputs), options_(options) {
    // Created here, because a trace does not record the numbers of a tensor
    // created within it.
    const auto how = options.preprocessing.value_or(ImagePreprocessing());
    const auto by_channel = [&](const auto& values, double otherwise) {
      const auto all = values.empty() ? torch::full({1}, otherwise)
                                      : torch::tensor(values, torch::kFloat);
      return 255 * all.view({-1, 1, 1}).to(inputs[0].device());
    };
    check_options(options);
    mean_ = by_channel(how.mean, 0);
    stddev_ = by_channel(how.stddev, 1);
  }

  TracedGraph make() {
    // A network may accept only multiples of a size.
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
    Tensors outputs = model_.forward(inputs);
    if (!options_.detection) return outputs;
    check_detector_outputs("export_onnx", outputs);
    TERN_CHECK_VALUE(
        outputs.size() == 4,
        "[export_onnx] detection is set and the model has {} outputs; expected "
        "the four outputs of a RetinaNet, since the file would have no others. "
        "Omit .detection.",
        outputs.size());
    anchors_ = outputs[2];
    const torch::Tensor boxes = decoded_boxes(outputs);
    const torch::Tensor logits = outputs[0].to(torch::kFloat);
    return {boxes, options_.nms ? logits : logits.sigmoid()};
  }

  /// For the last inputs of `forward`.
  std::vector<int64_t> anchor_counts() const {
    return anchors_per_level("export_onnx", anchors_, *options_.detection);
  }

  /// A level with one position in both traces would have one position in all
  /// images.
  void check_levels(const torch::Tensor& anchors_of_first) const {
    if (!options_.dynamic_size) return;
    const auto counts = [&](const torch::Tensor& anchors) {
      return anchors_per_level("export_onnx", anchors, *options_.detection);
    };
    const Integers first = counts(anchors_of_first), second = counts(anchors_);
    for (size_t i = 0; i < first.size(); ++i) {
      TERN_CHECK_VALUE(
          first[i] != second[i],
          "[export_onnx] dynamic_size is true and level {} has {} anchors both "
          "at the example's size and at about twice that size; expected more "
          "at the larger size. Give a larger example, or set .dynamic_size = "
          "false.",
          i,
          first[i]);
    }
  }

  /// Computes the file's expected detections from its boxes and logits.
  Tensors detections_of(const Tensors& raw) const {
    const auto boxes_of = [&](const torch::Tensor& anchor, int64_t begin) {
      const torch::Tensor index = (anchor + begin).unsqueeze(2);
      return raw[0].gather(1, index.expand({-1, -1, 4}));
    };
    return select_detections(
        raw[1],
        boxes_of,
        anchor_counts(),
        *options_.detection,
        /*keeps_order=*/true);
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
    const torch::Tensor anchors_of_first = anchors_;
    const Names outputs = add_trace(*made.graph, second);
    if (options_.detection) check_levels(anchors_of_first);
    made.graph->remove_unused();
    const std::function<Tensors(const Tensors&)> rest =
        [this](const Tensors& raw) { return detections_of(raw); };
    check_graph(
        *made.graph,
        outputs,
        checked_samples(inputs_, options_, second),
        [this](const Tensors& inputs) { return forward(inputs); },
        tolerance_of(model_, inputs_),
        options_.nms ? rest : nullptr);
    if (options_.nms) made.graph->drop_outputs(kRaw.size());
    return made;
  }

  /// The path for odd sizes may work for other sizes too.
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
    Names taken;  // names of weights
    for (const ModelTensor& t : model_.state()) taken.push_back(t.name);
    const Names in = names_of(
        options_.input_names,
        "input",
        default_names("input", inputs.size()),
        taken);
    Names usual = default_names("output", results);
    if (options_.detection) usual = {"boxes", "scores"};
    if (options_.nms) usual.push_back("labels");
    Names out = names_of(options_.output_names, "output", usual, taken);
    if (!options_.nms) {
      translate(*traced, in, out, graph);
      return out;
    }
    translate(*traced, in, kRaw, graph);
    add_detections(graph, out);
    out.insert(out.begin(), kRaw.begin(), kRaw.end());
    return out;
  }

  void add_detections(OnnxGraph& graph, const Names& names) {
    const Values raw = graph.outputs();
    const Integers logits = sizes_of(raw[1]);
    onnx::add_detections(
        graph,
        {raw[0],
         raw[1],
         /*images=*/logits[0],
         /*classes=*/logits[2],
         anchor_counts(),
         options_.dynamic_size},
        *options_.detection,
        names);
  }

  Model model_;
  const Tensors inputs_;
  const OnnxOptions options_;
  torch::Tensor mean_, stddev_;  // in the range of bytes
  torch::Tensor anchors_;        // from the last outputs, [N, A, 4]
};

}  // namespace

TracedGraph make_graph(
    Model model,
    const Tensors& example_inputs,
    const OnnxOptions& options) {
  return GraphMaker(std::move(model), example_inputs, options).make();
}

}  // namespace tern::onnx
