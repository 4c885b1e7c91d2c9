#include "tern/learner/inference/nan_values.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ops/aminmax.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/types.h>

namespace tern {

namespace {

namespace jit = torch::jit;

/// Operators whose results are finite if their operands are. Operators that are
/// missing here only prevent that layers after them are fused.
const std::unordered_set<std::string>& finite_operators() {
  static const std::unordered_set<std::string> names = {
      "_convolution",
      "abs",
      "adaptive_avg_pool1d",
      "adaptive_avg_pool2d",
      "adaptive_avg_pool3d",
      "adaptive_max_pool2d",
      "add",
      "addcmul",
      "addmm",
      "alias",
      "amax",
      "amin",
      "arange",
      "argmax",
      "argmin",
      "avg_pool1d",
      "avg_pool2d",
      "avg_pool3d",
      "baddbmm",
      "batch_norm",
      "bitwise_not",
      "bmm",
      "broadcast_to",
      "cat",
      "ceil",
      "celu",
      "channel_shuffle",
      "chunk",
      "clamp",
      "clamp_max",
      "clamp_min",
      "clone",
      "constant_pad_nd",
      "contiguous",
      "cos",
      "cumsum",
      "detach",
      "dropout",
      "einsum",
      "elu",
      "embedding",
      "eq",
      "erf",
      "expand",
      "expand_as",
      "feature_dropout",
      "flatten",
      "flip",
      "floor",
      "full",
      "full_like",
      "gather",
      "ge",
      "gelu",
      "glu",
      "grid_sampler",
      "group_norm",
      "gru",
      "gt",
      "hardshrink",
      "hardsigmoid",
      "hardswish",
      "hardtanh",
      "index",
      "index_select",
      "instance_norm",
      "layer_norm",
      "le",
      "leaky_relu",
      "lerp",
      "linalg_vector_norm",
      "linear",
      "log_sigmoid",
      "log_softmax",
      "logical_and",
      "logical_not",
      "logical_or",
      "lstm",
      "lt",
      "masked_fill",
      "matmul",
      "max",
      "max_pool1d",
      "max_pool2d",
      "max_pool3d",
      "maximum",
      "mean",
      "min",
      "minimum",
      "mish",
      "movedim",
      "mul",
      "multiply",
      "narrow",
      "ne",
      "neg",
      "new_ones",
      "new_zeros",
      "numpy_T",
      "ones",
      "ones_like",
      "pad",
      "permute",
      "pixel_shuffle",
      "pixel_unshuffle",
      "prelu",
      "reflection_pad1d",
      "reflection_pad2d",
      "relu",
      "relu6",
      "repeat",
      "repeat_interleave",
      "replication_pad1d",
      "replication_pad2d",
      "reshape",
      "reshape_as",
      "rnn_relu",
      "rnn_tanh",
      "roll",
      "round",
      "rsub",
      "select",
      "selu",
      "sigmoid",
      "sign",
      "silu",
      "sin",
      "size",
      "slice",
      "softmax",
      "softplus",
      "softshrink",
      "sort",
      "split",
      "split_with_sizes",
      "square",
      "squeeze",
      "stack",
      "sub",
      "subtract",
      "sum",
      "swapaxes",
      "t",
      "tanh",
      "tanhshrink",
      "threshold",
      "tile",
      "to",
      "topk",
      "transpose",
      "tril",
      "triu",
      "trunc",
      "type_as",
      "unbind",
      "unflatten",
      "unsqueeze",
      "upsample_bicubic2d",
      "upsample_bilinear2d",
      "upsample_linear1d",
      "upsample_nearest2d",
      "upsample_trilinear3d",
      "view",
      "view_as",
      "where",
      "zeros",
      "zeros_like"};
  return names;
}

bool is_finite(const jit::IValue& constant) {
  if (constant.isDouble()) return std::isfinite(constant.toDouble());
  if (!constant.isTensor()) return true;
  const torch::Tensor& tensor = constant.toTensor();
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  const auto [least, most] = at::aminmax(tensor);  // NaN if the tensor has one
  return std::isfinite(least.item<double>()) &&
         std::isfinite(most.item<double>());
}

bool is_float_tensor(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  return type && type->scalarType() && c10::isFloatingType(*type->scalarType());
}

/// True for a constant without zeros.
bool is_never_zero(const jit::Value& value) {
  const auto known = jit::toIValue(&value);
  if (!known) return false;
  if (known->isScalar()) return known->toScalar().toDouble() != 0;
  return known->isTensor() && known->toTensor().ne(0).all().item<bool>();
}

/// True if the results of an operator may contain NaN or infinity although its
/// operands are finite.
bool may_create_nan(const jit::Node& node) {
  if (node.kind() == c10::prim::Constant) {
    const auto known = jit::toIValue(node.output());
    return known && !is_finite(*known);
  }
  if (node.kind().is_prim()) return false;  // lists, tuples and their elements
  if (!node.kind().is_aten()) return true;
  std::string name = node.kind().toUnqualString();
  if (name.ends_with('_')) name.pop_back();
  if (name == "div") return !is_never_zero(*node.input(1));
  // A mask of booleans may exclude all keys of a query.
  if (name == "scaled_dot_product_attention") {
    const jit::Value& mask = *node.input(3);
    return !mask.mustBeNone() && !is_float_tensor(mask);
  }
  return !finite_operators().contains(name);
}

}  // namespace

std::unordered_set<const jit::Value*> values_with_nan(const jit::Graph& graph) {
  std::unordered_set<const jit::Value*> found;
  // An operator in place may also write into views of its operand.
  bool may_be_any = false;
  for (const jit::Node* node : graph.nodes()) {
    const bool has_nan =
        may_be_any || may_create_nan(*node) ||
        std::ranges::any_of(node->inputs(), [&](const jit::Value* input) {
          return found.contains(input);
        });
    if (!has_nan) continue;
    found.insert(node->outputs().begin(), node->outputs().end());
    const c10::FunctionSchema* const schema = node->maybeSchema();
    may_be_any |= schema != nullptr && schema->is_mutable();
  }
  return found;
}

}  // namespace tern
