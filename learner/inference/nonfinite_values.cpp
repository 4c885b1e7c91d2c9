#include "tern/learner/inference/nonfinite_values.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ops/aminmax.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/types.h>

namespace tern {

namespace {

namespace jit = torch::jit;

/// Operators whose results are finite if their operands are, for any further
/// arguments. An operator that is missing here only makes layers after it
/// slower: their activations are not fused, and Winograd is not used.
const std::unordered_set<std::string>& finite_operators() {
  static const std::unordered_set<std::string> names = {
      "_convolution",
      "Float",
      "FloatImplicit",
      "ScalarImplicit",
      "abs",
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
      "bitwise_not",
      "bmm",
      "broadcast_to",
      "cat",
      "ceil",
      "channel_shuffle",
      "chunk",
      "clamp",
      "clamp_max",
      "clamp_min",
      "clone",
      "col2im",
      "constant_pad_nd",
      "contiguous",
      "copy",
      "cos",
      "cumsum",
      "detach",
      "dropout",
      "einsum",
      "embedding",
      "eq",
      "erf",
      "expand",
      "expand_as",
      "feature_dropout",
      "fill",
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
      "gru",
      "gt",
      "hardshrink",
      "hardsigmoid",
      "hardswish",
      "hardtanh",
      "hstack",
      "im2col",
      "index",
      "index_put",
      "index_select",
      "le",
      "leaky_relu",
      "lerp",
      "linear",
      "log_sigmoid",
      "log_softmax",
      "logical_and",
      "logical_not",
      "logical_or",
      "lstm",
      "lt",
      "mT",
      "masked_fill",
      "matmul",
      "max",
      "maximum",
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
      "unfold",
      "unsqueeze",
      "upsample_bicubic2d",
      "upsample_bilinear2d",
      "upsample_linear1d",
      "upsample_nearest2d",
      "upsample_trilinear3d",
      "view",
      "view_as",
      "vstack",
      "where",
      "zero",
      "zeros",
      "zeros_like"};
  return names;
}

/// The layers compute in kFloat or kBFloat16, whose ranges are equal.
bool is_finite_float(double number) {
  return std::isfinite(static_cast<float>(number));
}

bool is_finite(const jit::IValue& constant) {
  if (constant.isDouble()) return is_finite_float(constant.toDouble());
  if (constant.isList()) {
    const auto elements = constant.toListRef();
    return std::all_of(elements.begin(), elements.end(), is_finite);
  }
  if (!constant.isTensor()) return !constant.isComplexDouble();
  const torch::Tensor& tensor = constant.toTensor();
  if (!tensor.defined() || tensor.numel() == 0) return true;
  if (tensor.is_complex()) return false;
  if (!tensor.is_floating_point()) return true;
  const auto [least, most] = at::aminmax(tensor);  // NaN if the tensor has one
  return is_finite_float(least.item<double>()) &&
         is_finite_float(most.item<double>());
}

/// Returns a constant number; NaN if the value is something else.
double number_of(const jit::Value& value) {
  const auto known = jit::toIValue(&value);
  if (known && known->isDouble()) return known->toDouble();
  if (known && known->isInt()) return static_cast<double>(known->toInt());
  return std::nan("");
}

/// True for a constant without zeros.
bool is_never_zero(const jit::Value& value) {
  const auto known = jit::toIValue(&value);
  if (known && known->isTensor()) {
    const torch::Tensor& tensor = known->toTensor();
    return !tensor.is_complex() &&
           tensor.to(torch::kFloat).ne(0).all().item<bool>();
  }
  const auto number = static_cast<float>(number_of(value));
  return number != 0 && !std::isnan(number);
}

/// True for a constant that is 1, or a list of ones.
bool is_one(const jit::Value& value) {
  const auto known = jit::toIValue(&value);
  return known && known->isIntList() &&
         std::ranges::all_of(known->toIntVector(), [](int64_t n) {
           return n == 1;
         });
}

/// True if a tensor's sizes are known and it has elements.
bool has_elements(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
  return sizes && std::ranges::find(*sizes, 0) == sizes->end();
}

/// True for the running variance of a BatchNorm if it and `eps` have a positive
/// sum, and if there is none.
bool is_positive_variance(const jit::Value& value, float eps) {
  if (value.mustBeNone()) return true;
  const auto known = jit::toIValue(&value);
  return known && known->isTensor() && known->toTensor().numel() > 0 &&
         known->toTensor().min().item<float>() + eps > 0;
}

/// Returns a constant as the kernels use it: a very small number becomes 0.
float eps_of(const jit::Value& value) {
  return static_cast<float>(number_of(value));
}

bool is_float_tensor(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  return type && type->scalarType() && c10::isFloatingType(*type->scalarType());
}

/// True for whole numbers, lists of them, and tensors of them.
bool is_integral(const jit::Value& value) {
  if (const auto type = value.type()->cast<c10::TensorType>()) {
    return type->scalarType() &&
           c10::isIntegralType(*type->scalarType(), /*includeBool=*/true);
  }
  const auto list = value.type()->cast<c10::ListType>();
  const c10::TypePtr type = list ? list->getElementType() : value.type();
  return type->kind() == c10::TypeKind::IntType ||
         type->kind() == c10::TypeKind::BoolType;
}

/// True if results of an operator of LibTorch may be NaN or infinite although
/// its operands are finite.
bool may_operator_create(const jit::Node& node) {
  std::string name = node.kind().toUnqualString();
  if (name.ends_with('_')) name.pop_back();
  const auto input = [&](size_t i) -> const jit::Value& {
    return *node.input(i);
  };
  if (name == "div") return !is_never_zero(input(1));
  if (name == "pow") {
    const double power = number_of(input(1));
    return !(power >= 1 && power == std::floor(power));
  }
  if (name == "mean" || name.starts_with("adaptive_avg_pool")) {
    return !has_elements(input(0));
  }
  // With dilation, a window may lie in the padding altogether.
  if (name.starts_with("max_pool")) return !is_one(input(4));
  if (name == "layer_norm" || name == "group_norm") {
    return !(eps_of(input(4)) > 0);
  }
  if (name == "batch_norm" || name == "instance_norm") {
    const float eps = eps_of(input(7));
    return !(eps > 0) || !is_positive_variance(input(4), eps);
  }
  // A mask of booleans may exclude all keys of a query.
  if (name == "scaled_dot_product_attention") {
    return !input(3).mustBeNone() && !is_float_tensor(input(3));
  }
  return !finite_operators().contains(name);
}

bool may_create_nonfinite(const jit::Node& node) {
  if (node.kind() == c10::prim::Constant) {
    const auto known = jit::toIValue(node.output());
    return known && !is_finite(*known);
  }
  if (!node.blocks().empty()) return true;
  if (node.kind().is_aten()) return may_operator_create(node);
  return node.kind() != c10::prim::ListConstruct &&
         node.kind() != c10::prim::ListUnpack &&
         node.kind() != c10::prim::TupleConstruct &&
         node.kind() != c10::prim::TupleUnpack &&
         node.kind() != c10::prim::NumToTensor;
}

}  // namespace

std::unordered_set<const jit::Value*> possibly_nonfinite_values(
    const jit::Graph& graph,
    const std::vector<size_t>& inputs) {
  std::unordered_set<const jit::Value*> found;
  for (const size_t i : inputs) found.insert(graph.inputs().at(i));
  // An operator in place may also write into views of its operand, and so into
  // the operands of any later operator.
  bool may_be_any = false;
  for (const jit::Node* node : graph.nodes()) {
    const bool may_be_nonfinite =
        may_be_any || may_create_nonfinite(*node) ||
        std::ranges::any_of(node->inputs(), [&](const jit::Value* input) {
          return found.contains(input);
        });
    if (!may_be_nonfinite) continue;
    for (const jit::Value* output : node->outputs()) {
      if (!is_integral(*output)) found.insert(output);
    }
    const c10::FunctionSchema* const schema = node->maybeSchema();
    may_be_any |=
        (schema != nullptr && schema->is_mutable()) || !node->blocks().empty();
  }
  return found;
}

}  // namespace tern
