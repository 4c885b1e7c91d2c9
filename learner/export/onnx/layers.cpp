// Matrix products, norms, attention and recurrent layers.
#include <cmath>
#include <limits>
#include <string_view>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

// ---- Matrix products ----

Values matmul(AtenNode& node, OnnxGraph& graph) {
  return {graph.op("MatMul", {node.value("self"), node.value("other")})};
}

// `mm` and `bmm`; an out_dtype is refused.
Values mm(AtenNode& node, OnnxGraph& graph) {
  return {graph.op("MatMul", {node.value("self"), node.value("mat2")})};
}

// self + mat1 @ mat2; beta and alpha, by which PyTorch multiplies, must be 1.
Values addmm(AtenNode& node, OnnxGraph& graph) {
  Value* const product =
      graph.op("MatMul", {node.value("mat1"), node.value("mat2")});
  return {graph.op("Add", {product, node.value("self")})};
}

// PyTorch has the weight as [out, in]. Gemm would transpose it, but takes
// matrices only, and an input may have more dimensions.
Values linear(AtenNode& node, OnnxGraph& graph) {
  Value* const input = node.value("input");
  const int64_t rank = node.rank("weight");
  Value* const weight =
      graph.swap_dimensions(node.value("weight"), rank, rank - 2, rank - 1);
  Value* const product = graph.op("MatMul", {input, weight});
  Value* const bias = node.optional_value("bias");
  return {bias ? graph.op("Add", {product, bias}) : product};
}

// ---- Norms ----

// Where it has not been folded into a convolution. Training is refused.
Values batch_norm(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"momentum", "cudnn_enabled"});
  return {graph.op(
      "BatchNormalization",
      {node.value("input"),
       node.value("weight"),
       node.value("bias"),
       node.value("running_mean"),
       node.value("running_var")},
      {{"epsilon", node.number("eps")}})};
}

// Over the last dimensions; ONNX has the first of these, from the end.
Values layer_norm(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"cudnn_enable"});
  return {graph.op(
      "LayerNormalization",
      {node.value("input"), node.value("weight"), node.optional_value("bias")},
      {{"axis", -std::ssize(node.integers("normalized_shape"))},
       {"epsilon", node.number("eps")}})};
}

// ---- Attention ----

// softmax(query * scale @ key^T + attn_mask) @ value. A mask of booleans says
// which scores count. is_causal and enable_gqa are refused; dropout is off in
// eval mode.
Values scaled_dot_product_attention(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"dropout_p"});
  const torch::ScalarType type = node.type("query");
  const double scale = node.has("scale")
                           ? node.number("scale")
                           : 1 / std::sqrt(node.sizes("query").back());
  Value* const query =
      graph.op("Mul", {node.value("query"), graph.scalar(scale, type)});
  const int64_t rank = node.rank("key");
  Value* const key =
      graph.swap_dimensions(node.value("key"), rank, rank - 2, rank - 1);
  Value* scores = graph.op("MatMul", {query, key});
  if (node.has("attn_mask")) {
    Value* const mask = node.value("attn_mask");
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    scores =
        node.type("attn_mask") == torch::kBool
            ? graph.op("Where", {mask, scores, graph.scalar(-kInfinity, type)})
            : graph.op("Add", {scores, mask});
  }
  return {
      graph.op("MatMul", {graph.op("Softmax", {scores}), node.value("value")})};
}

// ---- Recurrent layers ----

namespace {

// PyTorch has four tensors for each layer and way: weights of the input and of
// the state, and a bias of each. A gate is a block of `hidden` rows in them.
struct RecurrentWeights {
  std::vector<torch::Tensor> tensors;
  int64_t hidden;
  int64_t ways;  // 2 if bidirectional
};

// With the gates in the order of ONNX: for an LSTM input, output, forget, cell
// instead of input, forget, cell, output; for a GRU update, reset, new instead
// of reset, update, new.
RecurrentWeights weights_of(AtenNode& node, bool is_lstm) {
  const int64_t ways = node.flag("bidirectional") ? 2 : 1;
  std::vector<torch::Tensor> tensors = node.constant("params").toTensorVector();
  const int64_t count = 4 * node.integer("num_layers") * ways;
  if (!node.flag("has_biases") || std::ssize(tensors) != count) {
    refuse(
        "it has proj_size or no biases; expected biases, and no projection "
        "of the state");
  }
  const int64_t hidden = tensors[1].size(1);
  const torch::Tensor gates =
      is_lstm ? torch::tensor({0, 3, 1, 2}) : torch::tensor({1, 0, 2});
  for (torch::Tensor& x : tensors) {
    x = x.unflatten(0, {-1, hidden}).index({gates}).flatten(0, 1);
  }
  return {tensors, hidden, ways};
}

// Tensor `k` of the four of a layer, of all ways: [ways, ...].
torch::Tensor
of_all_ways(const RecurrentWeights& weights, int64_t layer, int64_t k) {
  std::vector<torch::Tensor> ways;
  for (int64_t way = 0; way < weights.ways; ++way) {
    ways.push_back(weights.tensors[4 * (layer * weights.ways + way) + k]);
  }
  return torch::stack(ways);
}

// ONNX has one layer in an operator, time in dimension 0, and the ways in a
// dimension of their own.
Values recurrent(const char* type, AtenNode& node, OnnxGraph& graph) {
  if (node.has("batch_sizes")) {
    refuse("it takes a packed sequence; expected a padded one");
  }
  node.ignore({"dropout", "train"});  // off in eval mode
  const bool is_lstm = std::string_view(type) == "LSTM";
  const int64_t layers = node.integer("num_layers");
  const RecurrentWeights weights = weights_of(node, is_lstm);

  // The first states: hidden, and cell of an LSTM, [layers * ways, N, hidden].
  const Values states = is_lstm ? node.values("hx") : Values{node.value("hx")};
  std::vector<Values> states_of_layers;
  for (Value* state : states) {
    states_of_layers.push_back(
        graph.op_with_outputs(layers, "Split", {state}, {{"axis", 0}}));
  }

  const bool is_batch_first = node.flag("batch_first");
  const Attributes swap_batch_and_time = {{"perm", Integers{1, 0, 2}}};
  Value* x = node.value("input");
  if (is_batch_first) x = graph.op("Transpose", {x}, swap_batch_and_time);

  Attributes attributes = {
      {"hidden_size", weights.hidden},
      {"direction", weights.ways == 2 ? "bidirectional" : "forward"}};
  // PyTorch multiplies the state by its weights before the reset gate does.
  if (!is_lstm) attributes.emplace_back("linear_before_reset", 1);

  std::vector<Values> last_states(states.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto weight = [&](int64_t k) {
      return of_all_ways(weights, layer, k);
    };
    Values inputs = {
        x,
        graph.constant(weight(0)),
        graph.constant(weight(1)),
        graph.constant(torch::cat({weight(2), weight(3)}, 1)),
        /*sequence_lens=*/nullptr};
    for (const Values& state : states_of_layers) {
      inputs.push_back(state[layer]);
    }
    const Values outputs =
        graph.op_with_outputs(1 + states.size(), type, inputs, attributes);
    for (size_t i = 0; i < states.size(); ++i) {
      last_states[i].push_back(outputs[1 + i]);
    }
    // [T, ways, N, hidden] to [T, N, ways * hidden].
    x = graph.op("Transpose", {outputs[0]}, {{"perm", Integers{0, 2, 1, 3}}});
    x = graph.op("Reshape", {x, graph.integers({0, 0, -1})});
  }
  if (is_batch_first) x = graph.op("Transpose", {x}, swap_batch_and_time);

  Values results = {x};
  for (const Values& state : last_states) {
    results.push_back(graph.op("Concat", state, {{"axis", 0}}));
  }
  return results;
}

}  // namespace

Values lstm(AtenNode& node, OnnxGraph& graph) {
  return recurrent("LSTM", node, graph);
}

Values gru(AtenNode& node, OnnxGraph& graph) {
  return recurrent("GRU", node, graph);
}

}  // namespace tern::onnx
