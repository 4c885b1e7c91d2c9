// LSTM, GRU and plain recurrent layers.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch has four tensors per layer and direction: weights of the input and of
// the state, and a bias for each. A gate is a block of `hidden` rows in them.
struct RecurrentWeights {
  std::vector<torch::Tensor> tensors;
  int64_t hidden;
  int64_t ways;  // directions; 2 if bidirectional
};

// Gates in ONNX's order. LSTM: input, output, forget, cell (in PyTorch: input,
// forget, cell, output). GRU: update, reset, new (in PyTorch: reset, update,
// new).
torch::Tensor gates_of(const std::string& type) {
  if (type == "LSTM") return torch::tensor({0, 3, 1, 2});
  return type == "GRU" ? torch::tensor({1, 0, 2}) : torch::tensor({0});
}

// Zeros replace missing biases.
RecurrentWeights weights_of(AtenNode& node, const torch::Tensor& gates) {
  const int64_t ways = node.flag("bidirectional") ? 2 : 1;
  const int64_t blocks = node.integer("num_layers") * ways;
  const std::vector<torch::Tensor> params =
      node.constant("params").toTensorVector();
  const bool has_biases = node.flag("has_biases");
  if (std::ssize(params) != blocks * (has_biases ? 4 : 2)) {
    refuse(
        "its proj_size is not 0; expected no projection of the state, which "
        "ONNX does not have. Write a Linear after the layer");
  }
  std::vector<torch::Tensor> tensors;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = i * (has_biases ? 4 : 2);
    for (int64_t k = 0; k < 4; ++k) {
      const bool is_given = has_biases || k < 2;
      tensors.push_back(
          is_given ? params[first + k]
                   : params[first].new_zeros({params[first].size(0)}));
    }
  }
  const int64_t hidden = tensors[1].size(1);
  for (torch::Tensor& x : tensors) {
    x = x.unflatten(0, {-1, hidden}).index({gates}).flatten(0, 1);
  }
  return {tensors, hidden, ways};
}

// Returns tensor `k` of a layer's four tensors, for all directions: [ways,
// ...].
torch::Tensor
of_all_ways(const RecurrentWeights& weights, int64_t layer, int64_t k) {
  std::vector<torch::Tensor> ways;
  for (int64_t way = 0; way < weights.ways; ++way) {
    ways.push_back(weights.tensors[4 * (layer * weights.ways + way) + k]);
  }
  return torch::stack(ways);
}

Attributes attributes_of(
    const std::string& type,
    const RecurrentWeights& weights,
    const char* activation) {
  Attributes attributes = {
      {"hidden_size", weights.hidden},
      {"direction", weights.ways == 2 ? "bidirectional" : "forward"}};
  // PyTorch multiplies the state by its weights before applying the reset gate.
  if (type == "GRU") attributes.emplace_back("linear_before_reset", 1);
  if (type == "RNN") {
    const std::vector<std::string> all(weights.ways, activation);
    attributes.emplace_back("activations", all);
  }
  return attributes;
}

void check_arguments(AtenNode& node) {
  if (node.has("batch_sizes")) {
    refuse(
        "its batch_sizes are of a packed sequence; expected a padded sequence. "
        "Call it with the padded tensor, and mask its output");
  }
  const double dropout = node.number("dropout");
  if (node.flag("train") && dropout != 0 && node.integer("num_layers") > 1) {
    refuse(fmt::format(
        "its train is true and dropout {}, so it draws random numbers in "
        "evaluation; expected train = false. Pass is_training()",
        dropout));
  }
  if (node.rank("input") != 3) {
    refuse(
        "its input has no batch dimension; expected 3 dimensions. Write "
        "unsqueeze before and squeeze after it");
  }
}

// In ONNX an operator is one layer, time is dimension 0, and directions have a
// separate dimension.
Values recurrent(
    const std::string& type,
    const char* activation,
    AtenNode& node,
    OnnxGraph& graph) {
  check_arguments(node);
  const int64_t layers = node.integer("num_layers");
  const RecurrentWeights weights = weights_of(node, gates_of(type));

  // Initial states: hidden and, for an LSTM, cell, [layers * ways, N, hidden].
  const Values states =
      type == "LSTM" ? node.values("hx") : Values{node.value("hx")};
  std::vector<Values> states_of_layers;
  for (Value* state : states) {
    states_of_layers.push_back(
        graph.op_with_outputs(layers, "Split", {state}, {{"axis", 0}}));
  }

  const bool is_batch_first = node.flag("batch_first");
  const Attributes swap_batch_and_time = {{"perm", Integers{1, 0, 2}}};
  Value* x = node.value("input");
  if (is_batch_first) x = graph.op("Transpose", {x}, swap_batch_and_time);

  const Attributes attributes = attributes_of(type, weights, activation);
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

// `activation` is for a plain recurrent layer; other layers have fixed
// activations.
Operator layer(const char* type, const char* activation = "") {
  return [=](AtenNode& node, OnnxGraph& graph) {
    return recurrent(type, activation, node, graph);
  };
}

}  // namespace

OperatorTable recurrent_layers() {
  return {
      {"aten::gru", layer("GRU")},
      {"aten::lstm", layer("LSTM")},
      {"aten::rnn_relu", layer("RNN", "Relu")},
      {"aten::rnn_tanh", layer("RNN", "Tanh")},
  };
}

}  // namespace tern::onnx
