// Matrix products.
#include <algorithm>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch multiplies matrices of the same type, which is also the type of the
// result.
Values matmul(AtenNode& node, OnnxGraph&) {
  const Term self = node.term("self", node.output_type());
  return term::matmul(self, node.term("other", node.output_type()));
}

// `mm` and `bmm`; out_dtype is not supported.
Values mm(AtenNode& node, OnnxGraph&) {
  return term::matmul(node.term("self"), node.term("mat2"));
}

Values mv(AtenNode& node, OnnxGraph&) {
  return term::matmul(node.term("self"), node.term("vec"));
}

Values dot(AtenNode& node, OnnxGraph&) {
  const Term product = node.term("self") * node.term("tensor");
  return term::sum(product, {}, /*keepdim=*/false);
}

Values outer(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term column = term::unsqueeze(node.term("self", type), 1);
  return column * node.term("vec2", type);
}

// beta * self + alpha * product. With beta = 0 PyTorch does not read self.
Values add_product(const char* a, const char* b, AtenNode& node) {
  const torch::ScalarType type = node.output_type();
  const Term first = node.term(a, type);
  Term product = term::matmul(first, node.term(b, type));
  if (node.number("alpha") != 1) product = product * node.term("alpha", type);
  const Term self = node.term("self", type);
  const double beta = node.number("beta");
  if (beta == 0) return product;
  return product + (beta == 1 ? self : self * node.term("beta", type));
}

Values addmm(AtenNode& node, OnnxGraph&) {
  return add_product("mat1", "mat2", node);
}

Values baddbmm(AtenNode& node, OnnxGraph&) {
  return add_product("batch1", "batch2", node);
}

// PyTorch stores the weight as [out, in]. Gemm could transpose it but supports
// only matrices, and an input may have more dimensions.
Values linear(AtenNode& node, OnnxGraph& graph) {
  const Term input = node.term("input");
  const int64_t rank = node.rank("weight");
  Value* const weight = rank < 2 ? node.value("weight")
                                 : graph.swap_dimensions(
                                       node.value("weight"),
                                       rank,
                                       rank - 2,
                                       rank - 1);
  const Term product =
      term::matmul(input, Term(graph, weight, node.type("weight")));
  return node.has("bias") ? product + node.term("bias", product.type())
                          : product;
}

// Removes spaces, which PyTorch allows. All tensors are cast to the type of the
// result; small integers are computed with 32 bits, as ONNX Runtime requires.
Values einsum(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"path"});
  std::string equation = node.string("equation");
  std::erase(equation, ' ');
  const torch::ScalarType type = node.output_type();
  const bool is_computed = c10::isFloatingType(type) || type == torch::kLong;
  const torch::ScalarType computed = is_computed ? type : torch::kInt;
  Value* const result = graph.op(
      "Einsum",
      node.values("tensors", computed),
      {{"equation", equation}});
  return Term(graph, result, computed).to(type);
}

// y[.., k] = sum of x1[.., i] * weight[k, i, j] * x2[.., j], plus a bias.
Values bilinear(AtenNode& node, OnnxGraph& graph) {
  const torch::ScalarType type = node.output_type();
  Value* const first = node.value("input1");
  Value* const second = node.value("input2");
  Value* const product = graph.op(
      "Einsum",
      {first, node.value("weight"), second},
      {{"equation", "...i,kij,...j->...k"}});
  const Term result(graph, product, type);
  return node.has("bias") ? result + node.term("bias") : result;
}

}  // namespace

OperatorTable matrix_products() {
  return {
      {"aten::addmm", addmm},
      {"aten::baddbmm", baddbmm},
      {"aten::bilinear", bilinear},
      {"aten::bmm", mm},
      {"aten::dot", dot},
      {"aten::einsum", einsum},
      {"aten::linear", linear},
      {"aten::matmul", matmul},
      {"aten::mm", mm},
      {"aten::mv", mv},
      {"aten::outer", outer},
  };
}

}  // namespace tern::onnx
