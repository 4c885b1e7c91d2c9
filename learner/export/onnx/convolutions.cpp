// Convolutions, windows, and operators that exchange channels and pixels.
#include <numeric>

#include "tern/learner/export/onnx/operators.h"
#include "tern/learner/export/onnx/spatial.h"

namespace tern::onnx {

namespace {

void check_is_image(const AtenNode& node) {
  if (node.rank("self") == 4) return;
  refuse("its self is not [N, C, H, W]; expected 4 dimensions. Reshape it");
}

// `pads` has all beginnings, then all ends.
Attributes
convolved(const Integers& kernel, const Integers& pads, AtenNode& node) {
  const int64_t rank = std::ssize(kernel);
  return {
      {"kernel_shape", kernel},
      {"strides", per_dimension(node.integers("stride"), rank)},
      {"pads", pads},
      {"dilations", per_dimension(node.integers("dilation"), rank)},
      {"group", node.integer("groups")}};
}

Integers kernel_of(const AtenNode& node) {
  const Integers weight = node.sizes("weight");  // [out, in, kernel...]
  return {weight.begin() + 2, weight.end()};
}

Values
with_weights(const char* type, const Attributes& attributes, AtenNode& node) {
  const Term input = node.term("input");
  Value* const weight = node.value("weight");
  return input.op_with(type, {weight, node.optional_value("bias")}, attributes);
}

// With any number of dimensions, also transposed.
Values convolution(AtenNode& node, OnnxGraph&) {
  node.ignore({"benchmark", "deterministic", "cudnn_enabled", "allow_tf32"});
  const Integers kernel = kernel_of(node);
  const int64_t rank = std::ssize(kernel);
  const Integers pads = both_sides(node.integers("padding"), rank);
  Attributes attributes = convolved(kernel, pads, node);
  const bool is_transposed = node.flag("transposed");
  const Integers output_padding = node.integers("output_padding");
  if (is_transposed) {
    attributes.emplace_back(
        "output_padding",
        per_dimension(output_padding, rank));
  }
  return with_weights(
      is_transposed ? "ConvTranspose" : "Conv",
      attributes,
      node);
}

// With padding by name: "same" for an output of the input's size, or "valid".
// If the padding is odd, the end has one more.
Values convolution_by_mode(AtenNode& node, OnnxGraph&) {
  const Integers kernel = kernel_of(node);
  const int64_t rank = std::ssize(kernel);
  const Integers dilation = per_dimension(node.integers("dilation"), rank);
  Integers pads(2 * rank, 0);
  for (int64_t i = 0; node.string("padding") == "same" && i < rank; ++i) {
    const int64_t total = dilation[i] * (kernel[i] - 1);
    pads[i] = total / 2;
    pads[rank + i] = total - total / 2;
  }
  return with_weights("Conv", convolved(kernel, pads, node), node);
}

// Returns the windows of an image as columns, [N, C * kernel, windows].
Values im2col(AtenNode& node, OnnxGraph& graph) {
  check_is_image(node);
  const Integers kernel = per_dimension(node.integers("kernel_size"), 2);
  const Integers dilation = per_dimension(node.integers("dilation"), 2);
  const Integers padding = per_dimension(node.integers("padding"), 2);
  const Integers stride = per_dimension(node.integers("stride"), 2);
  const Integers sizes = node.sizes("self");
  Integers pads(2 * sizes.size(), 0);
  for (int64_t i = 0; i < 2; ++i) {
    pads[sizes.size() - 2 + i] = pads[2 * sizes.size() - 2 + i] = padding[i];
  }
  const auto places = [&](int64_t i) {
    const int64_t size = sizes[sizes.size() - 2 + i] + 2 * padding[i];
    const int64_t extent = dilation[i] * (kernel[i] - 1) + 1;
    const int64_t windows = (size - extent) / stride[i] + 1;
    return torch::arange(kernel[i]).unsqueeze(1) * dilation[i] +
           torch::arange(windows) * stride[i];
  };
  const Term x = node.term("self");
  const Term padded = x.op_with("Pad", {graph.integers(pads)});
  // [N, C, kh, h, kw, w] to [N, C, kh, kw, h, w].
  const Term windows =
      term::gather(term::gather(padded, places(0), 2), places(1), 4);
  const Term columns = term::transpose(windows, {0, 1, 2, 4, 3, 5});
  return term::reshape(columns, node.output_sizes());
}

// ONNX Runtime rearranges only pixels in floats.
Term movable(AtenNode& node) {
  const Term x = node.term("self");
  return x.is_float() ? x : x.to(torch::kDouble);
}

// Channels are in PyTorch's order: column, row, depth.
Values pixel_shuffle(AtenNode& node, OnnxGraph&) {
  check_is_image(node);
  return movable(node)
      .op("DepthToSpace",
          {},
          {{"blocksize", node.integer("upscale_factor")}, {"mode", "CRD"}})
      .to(node.type("self"));
}

// ONNX puts the position within a block before the channel, PyTorch after it.
Values pixel_unshuffle(AtenNode& node, OnnxGraph&) {
  check_is_image(node);
  const int64_t factor = node.integer("downscale_factor");
  const int64_t channels = node.sizes("self")[1];
  const Term blocks =
      movable(node).op("SpaceToDepth", {}, {{"blocksize", factor}});
  const auto order =
      torch::arange(channels * factor * factor).view({-1, channels}).t();
  return term::gather(blocks, order.flatten(), 1).to(node.type("self"));
}

// Interleaves the channels of the groups.
Values channel_shuffle(AtenNode& node, OnnxGraph&) {
  const int64_t channels = node.sizes("self")[1];
  const auto order =
      torch::arange(channels).view({node.integer("groups"), -1}).t();
  return term::gather(node.term("self"), order.flatten(), 1);
}

}  // namespace

OperatorTable convolutions() {
  return {
      {"aten::_convolution", convolution},
      {"aten::_convolution_mode", convolution_by_mode},
      {"aten::channel_shuffle", channel_shuffle},
      {"aten::im2col", im2col},
      {"aten::pixel_shuffle", pixel_shuffle},
      {"aten::pixel_unshuffle", pixel_unshuffle},
  };
}

}  // namespace tern::onnx
