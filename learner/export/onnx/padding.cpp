// Padding of tensors.
#include <limits>
#include <string>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch has a beginning and an end for each dimension, from the last
// dimension backwards, and may omit the first dimensions. ONNX has the
// beginnings of all dimensions in order, then the ends.
Value* onnx_pads(const Integers& padding, AtenNode& node, OnnxGraph& graph) {
  const int64_t rank = node.rank("self");
  Integers pads(2 * rank, 0);
  for (int64_t i = 0; i < std::ssize(padding); i += 2) {
    const int64_t dimension = rank - 1 - i / 2;
    pads[dimension] = padding[i];
    pads[rank + dimension] = padding[i + 1];
  }
  return graph.integers(pads);
}

// ONNX Runtime does not pad 16-bit integers.
torch::ScalarType padded_type(torch::ScalarType type) {
  return type == torch::kShort ? torch::kInt : type;
}

// Pads with a number.
Values padded(double number, AtenNode& node, OnnxGraph& graph) {
  const Term x = node.term("self");
  const torch::ScalarType type = padded_type(x.type());
  Value* const pads = onnx_pads(node.integers("pad"), node, graph);
  Value* const value = graph.scalar(number, type);
  return x.to(type)
      .op_with("Pad", {pads, value}, {{"mode", "constant"}})
      .to(x.type());
}

Values constant_pad_nd(AtenNode& node, OnnxGraph& graph) {
  return padded(node.number("value"), node, graph);
}

// \param name  Name of the argument with the padding.
Values
by_mode(const char* mode, const char* name, AtenNode& node, OnnxGraph& graph) {
  Value* const pads = onnx_pads(node.integers(name), node, graph);
  const Term x = node.term("self");
  return x.to(padded_type(x.type()))
      .op_with("Pad", {pads}, {{"mode", mode}})
      .to(x.type());
}

Operator with_mode(const char* mode) {
  return [mode](AtenNode& node, OnnxGraph& graph) {
    return by_mode(mode, "padding", node, graph);
  };
}

// Pads with the opposite end of each dimension, which ONNX supports from opset
// 19 on.
Values circular(AtenNode& node, OnnxGraph& graph) {
  const Integers padding = node.integers("pad");
  const Integers sizes = node.sizes("self");
  Value* x = node.value("self");
  for (int64_t i = 0; i < std::ssize(padding); i += 2) {
    const int64_t axis = std::ssize(sizes) - 1 - i / 2;
    const int64_t begin = padding[i], end = padding[i + 1];
    if (begin < 0 || end < 0) {
      refuse(
          "its pad is negative and its mode circular; expected numbers >= 0. "
          "Crop it with slice");
    }
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    const auto part = [&](int64_t from, int64_t to) {
      Value* const start = graph.integers({from});
      Value* const stop = graph.integers({to});
      return graph.op("Slice", {x, start, stop, graph.integers({axis})});
    };
    Values parts = {x};
    if (begin > 0) parts.insert(parts.begin(), part(-begin, kEnd));
    if (end > 0) parts.push_back(part(0, end));
    if (parts.size() > 1) x = graph.op("Concat", parts, {{"axis", axis}});
  }
  return {x};
}

// Selects the padding by its mode.
Values padded_by(const std::string& mode, AtenNode& node, OnnxGraph& graph) {
  const double number = node.has("value") ? node.number("value") : 0;
  if (mode == "constant") return padded(number, node, graph);
  if (mode == "circular") return circular(node, graph);
  return by_mode(mode == "reflect" ? "reflect" : "edge", "pad", node, graph);
}

Values pad(AtenNode& node, OnnxGraph& graph) {
  return padded_by(node.string("mode"), node, graph);
}

// Modes are numbered as in ATen's padding_mode, which functional::pad uses.
Values pad_enum(AtenNode& node, OnnxGraph& graph) {
  constexpr const char* kModes[] = {
      "reflect",
      "replicate",
      "circular",
      "constant"};
  return padded_by(kModes[node.integer("mode")], node, graph);
}

}  // namespace

OperatorTable padding() {
  return {
      {"aten::_pad_enum", pad_enum},
      {"aten::constant_pad_nd", constant_pad_nd},
      {"aten::pad", pad},
      {"aten::reflection_pad1d", with_mode("reflect")},
      {"aten::reflection_pad2d", with_mode("reflect")},
      {"aten::reflection_pad3d", with_mode("reflect")},
      {"aten::replication_pad1d", with_mode("edge")},
      {"aten::replication_pad2d", with_mode("edge")},
      {"aten::replication_pad3d", with_mode("edge")},
  };
}

}  // namespace tern::onnx
