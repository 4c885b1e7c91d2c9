// LSTM, GRU and RNN, step by step, as in the specification.
#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

// One direction of a layer: weights [gates * H, ...] and biases [gates * H].
struct Cell {
  Tensor input_weight, state_weight, input_bias, state_bias;

  // A gate's contribution from the input, or from the state.
  Tensor of_input(const Tensor& x, int64_t gate, int64_t hidden) const {
    const int64_t row = gate * hidden;
    return torch::matmul(x, input_weight.narrow(0, row, hidden).t()) +
           input_bias.narrow(0, row, hidden);
  }
  Tensor of_state(const Tensor& h, int64_t gate, int64_t hidden) const {
    const int64_t row = gate * hidden;
    return torch::matmul(h, state_weight.narrow(0, row, hidden).t()) +
           state_bias.narrow(0, row, hidden);
  }
};

// Replaces the states by the states after the input x [N, I].
using Step = std::function<void(const Cell&, const Tensor& x, Tensor* states)>;

Cell cell_of(const Operation& op, int64_t way) {
  const Tensor input_weight = op.floats(1)[way],
               state_weight = op.floats(2)[way];
  const int64_t rows = input_weight.size(0);
  Tensor bias = torch::zeros({2 * rows}, input_weight.options());
  if (op.has(3)) bias = op.floats(3)[way];
  TERN_CHECK_VALUE(
      bias.numel() == 2 * rows && state_weight.size(0) == rows,
      "its weights have {} and {} rows and {} biases; expected the same number "
      "of rows, and two biases for each",
      rows,
      state_weight.size(0),
      bias.numel());
  return {
      input_weight,
      state_weight,
      bias.narrow(0, 0, rows),
      bias.narrow(0, rows, rows)};
}

void require_plain(const Operation& op, int64_t state_count) {
  for (const torch::Tensor& x : op.inputs()) {
    TERN_CHECK_VALUE(
        !x.defined() || x.scalar_type() == op.input().scalar_type(),
        "it takes {} and {}; expected operands of the same type",
        torch::toString(op.input().scalar_type()),
        torch::toString(x.scalar_type()));
  }
  TERN_CHECK_VALUE(
      !op.has(4) && static_cast<int64_t>(op.count()) <= 5 + state_count &&
          op.integer("layout", 0) == 0,
      "it has sequence lengths, peepholes or a different layout; expected none "
      "of these");
}

// `states`: 1 for the hidden state only, 2 for an LSTM's hidden and cell state.
std::vector<Tensor> run(const Operation& op, size_t states, const Step& step) {
  require_plain(op, static_cast<int64_t>(states));
  const Tensor& x = op.floats();  // [T, N, I]
  const int64_t length = x.size(0), hidden = op.integer("hidden_size", 0);
  const std::string direction = op.text("direction", "forward");
  const int64_t ways = direction == "bidirectional" ? 2 : 1;
  TERN_CHECK_VALUE(
      op.input(1).size(0) == ways && op.input(2).size(-1) == hidden,
      "its weights have {} directions and a hidden size of {}; expected {} and "
      "{}",
      op.input(1).size(0),
      op.input(2).size(-1),
      ways,
      hidden);
  std::vector<Tensor> outputs_of_ways;
  std::vector<std::vector<Tensor>> last(states);
  for (int64_t way = 0; way < ways; ++way) {
    const Cell cell = cell_of(op, way);
    const bool is_reverse = direction == "reverse" || way == 1;
    Tensor now[2];
    for (size_t i = 0; i < states; ++i) {
      const Integers shape = {x.size(1), hidden};
      now[i] = op.has(5 + i) ? op.floats(5 + i)[way]
                             : torch::zeros(shape, x.options());
      TERN_CHECK_VALUE(
          now[i].sizes() == shape,
          "its initial state is for {} samples; expected {}",
          now[i].size(0),
          x.size(1));
    }
    std::vector<Tensor> outputs(length);
    for (int64_t t = 0; t < length; ++t) {
      const int64_t place = is_reverse ? length - 1 - t : t;
      step(cell, x[place], now);
      outputs[place] = now[0];
    }
    outputs_of_ways.push_back(torch::stack(outputs));
    for (size_t i = 0; i < states; ++i) last[i].push_back(now[i]);
  }
  std::vector<Tensor> results = {torch::stack(outputs_of_ways, 1)};
  for (const auto& state : last) results.push_back(torch::stack(state));
  results.resize(op.output_count());
  return results;
}

// Gates: input, output, forget, cell.
std::vector<Tensor> lstm(const Operation& op) {
  const int64_t hidden = op.integer("hidden_size", 0);
  return run(op, 2, [=](const Cell& cell, const Tensor& x, Tensor* states) {
    const auto gate = [&](int64_t i) {
      return cell.of_input(x, i, hidden) + cell.of_state(states[0], i, hidden);
    };
    const Tensor input = gate(0).sigmoid(), output = gate(1).sigmoid(),
                 forget = gate(2).sigmoid(), candidate = gate(3).tanh();
    states[1] = forget * states[1] + input * candidate;
    states[0] = output * states[1].tanh();
  });
}

// Gates: update, reset, hidden.
std::vector<Tensor> gru(const Operation& op) {
  const int64_t hidden = op.integer("hidden_size", 0);
  const bool is_reset_after = op.integer("linear_before_reset", 0) != 0;
  return run(op, 1, [=](const Cell& cell, const Tensor& x, Tensor* states) {
    const Tensor& h = states[0];
    const auto gate = [&](int64_t i) {
      return (cell.of_input(x, i, hidden) + cell.of_state(h, i, hidden))
          .sigmoid();
    };
    const Tensor update = gate(0), reset = gate(1);
    const Tensor state = is_reset_after ? reset * cell.of_state(h, 2, hidden)
                                        : cell.of_state(reset * h, 2, hidden);
    const Tensor candidate = (cell.of_input(x, 2, hidden) + state).tanh();
    states[0] = (1 - update) * candidate + update * h;
  });
}

// Activations are attributes: one per direction, by default "Tanh".
std::vector<Tensor> rnn(const Operation& op) {
  const int64_t hidden = op.integer("hidden_size", 0);
  const std::vector<std::string> names = op.texts("activations");
  const bool is_relu = !names.empty() && names[0] == "Relu";
  return run(op, 1, [=](const Cell& cell, const Tensor& x, Tensor* states) {
    const Tensor sum =
        cell.of_input(x, 0, hidden) + cell.of_state(states[0], 0, hidden);
    states[0] = is_relu ? sum.relu() : sum.tanh();
  });
}

}  // namespace

void add_recurrent(ComputeTable& table) {
  table["LSTM"] = lstm;
  table["GRU"] = gru;
  table["RNN"] = rnn;
}

}  // namespace tern::onnx
