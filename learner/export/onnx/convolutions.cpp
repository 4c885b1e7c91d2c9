// Convolutions, pooling, and what changes the size of images.
#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch allows one number for all spatial dimensions, ONNX does not.
Integers per_dimension(Integers numbers, int64_t spatial_rank) {
  if (numbers.size() == 1) numbers.resize(spatial_rank, numbers[0]);
  return numbers;
}

// PyTorch pads both sides of a dimension alike. ONNX has the beginnings of all
// dimensions, then the ends.
Integers pads(const Integers& padding, int64_t spatial_rank) {
  const Integers begins = per_dimension(padding, spatial_rank);
  Integers pads = begins;
  pads.insert(pads.end(), begins.begin(), begins.end());
  return pads;
}

// Images have two dimensions before the spatial ones: N and C.
int64_t spatial_rank(const AtenNode& node) {
  return node.rank("self") - 2;
}

Attributes window(AtenNode& node) {
  const int64_t rank = spatial_rank(node);
  const Integers kernel = node.integers("kernel_size");
  const Integers stride = node.integers("stride");
  return {
      {"kernel_shape", per_dimension(kernel, rank)},
      // PyTorch's default is the kernel's size, ONNX's is 1.
      {"strides", per_dimension(stride.empty() ? kernel : stride, rank)}};
}

// ONNX has global pooling, and none for other sizes.
void require_output_of_one(AtenNode& node) {
  const Integers sizes = node.integers("output_size");
  if (sizes == Integers(sizes.size(), 1)) return;
  refuse(fmt::format(
      "its output_size is {}; expected 1, the only one that ONNX has",
      c10::str(c10::IValue(sizes))));
}

}  // namespace

// ---- Convolutions ----

// Of any number of dimensions, also transposed.
Values convolution(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"benchmark", "deterministic", "cudnn_enabled", "allow_tf32"});
  const Integers weight = node.sizes("weight");  // [out, in, kernel...]
  const Integers kernel(weight.begin() + 2, weight.end());
  const int64_t rank = std::ssize(kernel);
  Attributes attributes = {
      {"kernel_shape", kernel},
      {"strides", per_dimension(node.integers("stride"), rank)},
      {"pads", pads(node.integers("padding"), rank)},
      {"dilations", per_dimension(node.integers("dilation"), rank)}};
  const bool is_transposed = node.flag("transposed");
  const Integers output_padding = node.integers("output_padding");
  if (is_transposed) {
    attributes.emplace_back(
        "output_padding",
        per_dimension(output_padding, rank));
  }
  attributes.emplace_back("group", node.integer("groups"));
  return {graph.op(
      is_transposed ? "ConvTranspose" : "Conv",
      {node.value("input"), node.value("weight"), node.optional_value("bias")},
      attributes)};
}

// ---- Pooling ----

// `max_pool1d` and `max_pool2d`.
Values max_pool(AtenNode& node, OnnxGraph& graph) {
  const int64_t rank = spatial_rank(node);
  Attributes attributes = window(node);
  attributes.emplace_back("pads", pads(node.integers("padding"), rank));
  attributes.emplace_back(
      "dilations",
      per_dimension(node.integers("dilation"), rank));
  attributes.emplace_back("ceil_mode", node.flag("ceil_mode"));
  return {graph.op("MaxPool", {node.value("self")}, attributes)};
}

// `avg_pool1d` and `avg_pool2d`. A divisor_override is refused, and so is
// padding with ceil_mode: ONNX before opset 19 counts what a window has beyond
// the padding as well, PyTorch does not.
Values avg_pool(AtenNode& node, OnnxGraph& graph) {
  Attributes attributes = window(node);
  if (node.flag("ceil_mode")) {
    attributes.emplace_back("ceil_mode", true);
    node.ignore({"count_include_pad"});
  } else {
    attributes.emplace_back(
        "pads",
        pads(node.integers("padding"), spatial_rank(node)));
    attributes.emplace_back(
        "count_include_pad",
        node.flag("count_include_pad"));
  }
  return {graph.op("AveragePool", {node.value("self")}, attributes)};
}

// `adaptive_avg_pool1d` and `adaptive_avg_pool2d`.
Values adaptive_avg_pool(AtenNode& node, OnnxGraph& graph) {
  require_output_of_one(node);
  return {graph.op("GlobalAveragePool", {node.value("self")})};
}

// Without the places of the maxima, which ONNX does not give.
Values adaptive_max_pool2d(AtenNode& node, OnnxGraph& graph) {
  require_output_of_one(node);
  return {graph.op("GlobalMaxPool", {node.value("self")})};
}

// ---- Sizes of images ----

namespace {

// `input_name`: overloads with scale_factors call the images `input`, those
// with an output_size alone `self`.
Values resize(AtenNode& node, OnnxGraph& graph, const Attributes& attributes) {
  const char* const images = node.has("input") ? "input" : "self";
  const Integers from = node.sizes(images), to = node.output_sizes();
  // Given a scale, PyTorch computes places with it. ONNX does so with the
  // ratio of the sizes, which is the same for whole numbers.
  const bool is_multiple = to[2] % from[2] == 0 && to[3] % from[3] == 0;
  if (node.integers("output_size").empty() && !is_multiple) {
    refuse(
        "its scale is no whole number; expected one, or an output_size. Give "
        "the size");
  }
  node.ignore({"output_size", "scale_factors"});  // that of the output
  // Resize has a region of interest and scales as optional inputs before the
  // sizes.
  Value* const sizes = graph.integers(to);
  return {graph.op(
      "Resize",
      {node.value(images), nullptr, nullptr, sizes},
      attributes)};
}

}  // namespace

Values upsample_nearest2d(AtenNode& node, OnnxGraph& graph) {
  return resize(
      node,
      graph,
      {{"nearest_mode", "floor"},
       {"coordinate_transformation_mode", "asymmetric"}});
}

// Without align_corners both have the centers of pixels at halves, which is
// ONNX's default, "half_pixel".
Values upsample_bilinear2d(AtenNode& node, OnnxGraph& graph) {
  Attributes attributes = {{"mode", "linear"}};
  if (node.flag("align_corners")) {
    attributes.emplace_back("coordinate_transformation_mode", "align_corners");
  }
  return resize(node, graph, attributes);
}

// With -0.75 in the cubic, as in PyTorch; align_corners is refused.
Values upsample_bicubic2d(AtenNode& node, OnnxGraph& graph) {
  return resize(node, graph, {{"mode", "cubic"}});
}

// Channels in the order that PyTorch has: column, row, depth.
Values pixel_shuffle(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "DepthToSpace",
      {node.value("self")},
      {{"blocksize", node.integer("upscale_factor")}, {"mode", "CRD"}})};
}

}  // namespace tern::onnx
