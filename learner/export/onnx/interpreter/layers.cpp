// Matrix products and normalization layers.
#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

std::vector<Tensor> gemm(const Operation& op) {
  op.require_one_type();
  Tensor a = op.numbers(0), b = op.numbers(1);
  TERN_CHECK_VALUE(
      a.dim() == 2 && b.dim() == 2,
      "it multiplies {} and {} dimensions; expected matrices",
      a.dim(),
      b.dim());
  if (op.integer("transA", 0) == 1) a = a.t();
  if (op.integer("transB", 0) == 1) b = b.t();
  const Tensor product = op.number("alpha", 1) * torch::matmul(a, b);
  if (!op.has(2)) return {product};
  const Tensor& added = op.numbers(2);
  return {product + op.number("beta", 1) * added.expand_as(product)};
}

// Reshapes one number per channel, dimension 1.
Tensor by_channel(const Tensor& numbers, const Tensor& x) {
  TERN_CHECK_VALUE(
      x.dim() >= 2 && numbers.dim() == 1 && numbers.size(0) == x.size(1),
      "it has {} numbers; expected one for each channel of the input",
      numbers.numel());
  Integers shape(x.dim(), 1);
  shape[1] = -1;
  return numbers.view(shape);
}

std::vector<Tensor> batch_normalization(const Operation& op) {
  op.require_one_type();
  TERN_CHECK_VALUE(
      op.integer("training_mode", 0) == 0,
      "its training_mode is 1; expected 0, with given statistics");
  const Tensor& x = op.floats();
  const auto input = [&](size_t i) { return by_channel(op.floats(i), x); };
  const Tensor scale = input(1), bias = input(2), mean = input(3);
  const Tensor deviation = (input(4) + op.number("epsilon", 1e-5)).sqrt();
  return {(x - mean) / deviation * scale + bias};
}

Tensor normalized(const Tensor& x, const Integers& axes, double epsilon) {
  const Tensor centered = x - x.mean(axes, /*keepdim=*/true);
  const Tensor variance = (centered * centered).mean(axes, /*keepdim=*/true);
  return centered / (variance + epsilon).sqrt();
}

// Normalizes over the dimensions from `axis` on.
std::vector<Tensor> layer_normalization(const Operation& op) {
  op.require_one_type();
  const Tensor& x = op.floats();
  Integers axes;
  for (int64_t i = op.axis(-1); i < x.dim(); ++i) axes.push_back(i);
  Tensor y = normalized(x, axes, op.number("epsilon", 1e-5));
  y = y * op.floats(1).expand_as(y);  // y is not expanded
  return {op.has(2) ? y + op.floats(2).expand_as(y) : y};
}

// Normalizes over all dimensions except the first two.
std::vector<Tensor> instance_normalization(const Operation& op) {
  op.require_one_type();
  const Tensor& x = op.floats();
  Integers axes;
  for (int64_t i = 2; i < x.dim(); ++i) axes.push_back(i);
  const Tensor y = normalized(x, axes, op.number("epsilon", 1e-5));
  return {y * by_channel(op.floats(1), x) + by_channel(op.floats(2), x)};
}

std::vector<Tensor> lp_normalization(const Operation& op) {
  const Tensor& x = op.floats();
  const int64_t axis = op.axis(-1);
  const Tensor sum = op.integer("p", 2) == 1
                         ? x.abs().sum({axis}, /*keepdim=*/true)
                         : (x * x).sum({axis}, /*keepdim=*/true).sqrt();
  return {x / sum};
}

}  // namespace

void add_layers(ComputeTable& table) {
  table["MatMul"] = [](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    return {torch::matmul(op.numbers(0), op.numbers(1))};
  };
  table["Gemm"] = gemm;
  table["Einsum"] = [](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    return {torch::einsum(op.text("equation", ""), op.inputs())};
  };
  table["BatchNormalization"] = batch_normalization;
  table["LayerNormalization"] = layer_normalization;
  table["InstanceNormalization"] = instance_normalization;
  table["LpNormalization"] = lp_normalization;
}

}  // namespace tern::onnx
