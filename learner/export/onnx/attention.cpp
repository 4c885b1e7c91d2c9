// Scaled dot product attention.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Term swap_last(const Term& x, int64_t rank) {
  Value* const swapped =
      x.graph().swap_dimensions(x.value(), rank, rank - 2, rank - 1);
  return {x.graph(), swapped, x.type()};
}

// With enable_gqa, several heads of the query share a head of the key or value.
Term shared_heads(const char* name, AtenNode& node) {
  const Term x = node.term(name);
  const int64_t rank = node.rank(name);
  if (!node.flag("enable_gqa") || rank < 3) return x;
  const int64_t heads = node.sizes(name)[rank - 3];
  const int64_t times = node.sizes("query")[rank - 3] / heads;
  if (times == 1) return x;
  const auto places = torch::arange(heads).repeat_interleave(times);
  return term::gather(x, places, rank - 3);
}

// Drops leading dimensions of 1, which OpenCV 4.6 handles incorrectly.
Term mask_of(AtenNode& node, OnnxGraph& graph) {
  const auto known = node.known_tensor("attn_mask");
  if (!known) return node.term("attn_mask");
  node.ignore({"attn_mask"});
  torch::Tensor mask = *known;
  while (mask.dim() > 1 && mask.size(0) == 1) mask = mask.squeeze(0);
  return {graph, graph.constant(mask), mask.scalar_type()};
}

// A boolean mask selects the scores that are used.
Term masked(const Term& scores, AtenNode& node, OnnxGraph& graph) {
  const auto where = [&](const Term& counts) {
    return term::where(counts, scores, scores.number(-kInfinity));
  };
  if (node.flag("is_causal")) {
    const int64_t length = node.sizes("query").rbegin()[1];
    const int64_t source = node.sizes("key").rbegin()[1];
    const auto mask = torch::ones({length, source}, torch::kBool).tril();
    return where(Term(graph, graph.constant(mask), torch::kBool));
  }
  if (!node.has("attn_mask")) return scores;
  const Term mask = mask_of(node, graph);
  return mask.is_bool() ? where(mask) : scores + mask.to(scores.type());
}

// True if a mask may leave a query with nothing to attend to.
bool may_empty_rows(const AtenNode& node) {
  if (!node.has("attn_mask")) return false;
  const auto mask = node.known_rows("attn_mask");
  if (!mask) return true;
  const bool is_bool = mask->scalar_type() == torch::kBool;
  const torch::Tensor hides = is_bool ? ~*mask : mask->eq(-kInfinity);
  return hides.all(-1).any().item<bool>();
}

// softmax(query * scale @ key^T + attn_mask) @ value. If a mask leaves nothing
// to attend to, PyTorch returns 0, but ONNX's Softmax gives NaN.
Values scaled_dot_product_attention(AtenNode& node, OnnxGraph& graph) {
  if (node.number("dropout_p") != 0) {
    refuse(fmt::format(
        "its dropout_p is {}, so it draws random numbers in evaluation; "
        "expected 0. Pass is_training() ? dropout_p : 0",
        node.number("dropout_p")));
  }
  const double scale =
      node.has("scale")
          ? node.number("scale")
          : 1 / std::sqrt(static_cast<double>(node.sizes("query").back()));
  const Term query = node.term("query") * scale;
  const Term key = swap_last(shared_heads("key", node), node.rank("key"));
  const Term value = shared_heads("value", node);
  const Term scores = masked(term::matmul(query, key), node, graph);
  const Term weights = scores.op("Softmax", {}, {{"axis", -1}});
  if (!may_empty_rows(node)) return term::matmul(weights, value);
  const Term largest = term::reduce("ReduceMax", scores, {-1}, true);
  const Term is_empty = largest == -kInfinity;
  return term::matmul(term::where(is_empty, weights.number(0), weights), value);
}

}  // namespace

OperatorTable attention() {
  return {{"aten::scaled_dot_product_attention", scaled_dot_product_attention}};
}

}  // namespace tern::onnx
