#include "tern/learner/inference/fused_model.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/utils.h>

#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/fuse_layers.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/inference/traced_sizes.h"
#include "tern/learner/inference/value_reads.h"
#include "tern/learner/model_around.h"

namespace tern {

namespace {

namespace jit = torch::jit;

using GraphPtr = std::shared_ptr<jit::Graph>;

/// Traces a model's computation for a batch.
/// \param outputs  Receives the model's outputs.
jit::Module traced(Model& model, const Tensors& batch, Tensors& outputs) {
  return trace(model, batch, [&](const Tensors& given) {
    outputs = model.forward(given);
    return outputs;
  });
}

GraphPtr graph_of(const jit::Module& trace) {
  return trace.get_method("forward").graph();
}

using NamedWeights = std::unordered_map<std::string, torch::Tensor>;

/// Returns weights and biases of convolutions by name, if the model has a
/// BatchNorm that may be folded into them.
NamedWeights weights_of_convolutions(const Model& model) {
  NamedWeights weights;
  const std::vector<ModelTensor> all = model.parameters();
  const bool has_norms = std::ranges::any_of(all, [](const ModelTensor& t) {
    return t.layer == LayerKind::batch_norm;
  });
  if (!has_norms) return weights;
  for (const ModelTensor& t : all) {
    if (t.tensor.dim() > 2) weights.emplace(t.name, t.tensor.detach());
  }
  for (const ModelTensor& t : all) {
    const std::string module = t.name.substr(0, t.name.rfind('.') + 1);
    if (t.is_bias() && weights.contains(module + "weight")) {
      weights.emplace(t.name, t.tensor.detach());
    }
  }
  return weights;
}

/// Sets the convolutions' weights to the weights before rounding.
void insert_full_weights(jit::Graph& graph, const NamedWeights& weights) {
  for (jit::Node* node : graph.nodes()) {
    if (node->kind() != c10::aten::_convolution) continue;
    for (const size_t i : {1, 2}) {
      const auto found = weights.find(node->input(i)->debugName());
      if (found == weights.end()) continue;
      const jit::WithInsertPoint here(node);
      jit::Value* const weight = graph.insertConstant(found->second);
      weight->setDebugName(found->first);  // base of the folded name
      node->replaceInput(i, weight);
    }
  }
}

/// Converts constant weights of convolutions to the dtype of their inputs.
void round_weights(jit::Graph& graph) {
  for (jit::Node* node : graph.nodes()) {
    if (node->kind() != c10::aten::_convolution) continue;
    const auto input = node->input(0)->type()->cast<c10::TensorType>();
    if (!input || !input->scalarType()) continue;
    for (const size_t i : {1, 2}) {
      const auto known = jit::toIValue(node->input(i));
      if (!known || !known->isTensor()) continue;
      const jit::WithInsertPoint here(node);
      node->replaceInput(
          i,
          graph.insertConstant(known->toTensor().to(*input->scalarType())));
    }
  }
}

jit::Code fused_code(
    jit::Graph& graph,
    const NamedWeights& full_weights,
    bool winograd,
    const std::vector<size_t>& nonfinite_inputs) {
  GraphPtr fused = graph.copy();
  insert_full_weights(*fused, full_weights);
  fold_batch_norms(fused);
  round_weights(*fused);
  fuse_layers(fused, winograd, nonfinite_inputs);
  return jit::Code(fused, "forward");
}

Tensors run(const jit::Code& code, const Tensors& inputs) {
  jit::Stack stack;
  for (const torch::Tensor& input : inputs) {
    stack.emplace_back(
        input.dim() == 4 ? input.contiguous(at::MemoryFormat::ChannelsLast)
                         : input);
  }
  jit::InterpreterState(code).run(stack);
  if (stack[0].isTensor()) return {stack[0].toTensor()};
  Tensors outputs;
  for (const auto& output : stack[0].toTupleRef().elements())
    outputs.push_back(output.toTensor());
  return outputs;
}

Tensors to_floats(const Tensors& tensors) {
  Tensors floats;
  for (const torch::Tensor& tensor : tensors) {
    floats.push_back(
        tensor.is_floating_point() ? tensor.to(torch::kFloat) : tensor);
  }
  return floats;
}

/// Returns the norm of the difference relative to the second tensor's norm;
/// infinite if their sizes differ.
double relative_distance(const torch::Tensor& one, const torch::Tensor& other) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (one.sizes() != other.sizes()) return kInfinity;
  const torch::Tensor numbers = other.to(torch::kDouble);
  const double norm = numbers.norm().item<double>();
  const double apart = (one.to(torch::kDouble) - numbers).norm().item<double>();
  return apart == 0 ? 0 : apart / norm;
}

bool have_types_of(const Tensors& outputs, const Tensors& others) {
  return std::ranges::equal(
      outputs,
      others,
      [](const torch::Tensor& one, const torch::Tensor& other) {
        return one.scalar_type() == other.scalar_type();
      });
}

/// True if all inputs have the same number of samples, at least one.
bool is_batch(const Tensors& inputs) {
  return !inputs.empty() &&
         std::ranges::all_of(inputs, [&](const torch::Tensor& input) {
           return input.dim() > 0 && input.size(0) > 0 &&
                  input.size(0) == inputs[0].size(0);
         });
}

/// Returns the indices of the tensors with NaN or infinity, and perhaps of
/// others whose sum is infinite.
std::vector<size_t> nonfinite_of(const Tensors& tensors) {
  std::vector<size_t> found;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor& tensor = tensors[i];
    bool is_finite = true;
    if (tensor.is_complex()) {
      is_finite = tensor.isfinite().all().item<bool>();
    } else if (tensor.is_floating_point()) {
      is_finite = std::isfinite(tensor.sum().item<double>());
    }
    if (!is_finite) found.push_back(i);
  }
  return found;
}

class FusedModel final : public ModelAround {
 public:
  FusedModel(const Model& model, std::optional<Model> full)
      : ModelAround(model), is_rounded_(full), full_(std::move(full)) {}

  Tensors forward(const Tensors& inputs) override {
    if (!is_batch(inputs) || !model_.module()) return model_.forward(inputs);
    // Some of oneDNN's activations replace NaN by a number.
    const std::vector<size_t> nonfinite = nonfinite_of(inputs);
    const auto has_nan = [&](size_t i) {
      return inputs[i].isnan().any().item<bool>();
    };
    if (std::ranges::any_of(nonfinite, has_nan)) return model_.forward(inputs);
    Program& program = programs_[inputs[0].size(0) == 1 ? 0 : 1];
    if (!nonfinite.empty() && !program.is_made) {
      // Infinity that reaches the outputs is not a mask but damage, and no
      // example for a graph.
      Tensors outputs = model_.forward(inputs);
      if (!nonfinite_of(outputs).empty()) return outputs;
    }
    make_once(program, inputs, nonfinite);
    if (!program.is_usable || !fits(program, inputs) ||
        !std::ranges::includes(program.nonfinite_inputs, nonfinite)) {
      return model_.forward(inputs);
    }
    if (!program.is_checked(inputs[0].size(0))) return check(program, inputs);
    try {
      return run(*program.code, inputs);
    } catch (const std::runtime_error&) {  // the interpreter's only error type
      return model_.forward(inputs);       // same error, without the graph
    }
  }

 private:
  /// A graph for one sample, or for several samples.
  struct Program {
    std::mutex making;
    std::atomic<bool> is_made = false;
    std::atomic<bool> is_usable = false;
    Tensors example;  // one sample, with the batch dimension
    // Infinite in the first batch, as masks for attention are.
    std::vector<size_t> nonfinite_inputs;
    std::optional<TracedSizes> sizes;
    std::optional<jit::Code> code;

    bool is_checked(int64_t size) {
      const std::lock_guard lock(checking_);
      return checked_.contains(size);
    }
    void add_checked(int64_t size) {
      const std::lock_guard lock(checking_);
      checked_.insert(size);
    }

   private:
    std::mutex checking_;
    std::set<int64_t> checked_;  // batch sizes with the same graph
  };

  /// Does not use std::call_once, which stays locked after an exception on some
  /// platforms.
  void make_once(
      Program& program,
      const Tensors& inputs,
      const std::vector<size_t>& nonfinite) {
    if (program.is_made) return;
    const std::lock_guard lock(program.making);
    if (program.is_made) return;
    program.nonfinite_inputs = nonfinite;
    make(program, inputs);
    program.is_made = true;
  }

  /// An error of the model itself is passed to the caller; the next batch tries
  /// again.
  void make(Program& program, const Tensors& inputs) {
    const KeptRandomState random(torch::kCPU);
    program.example.clear();
    for (const torch::Tensor& input : inputs) {
      program.example.push_back(input.narrow(0, 0, 1).clone());
    }
    const bool is_one = inputs[0].size(0) == 1;
    const Tensors few = with_batch_size(inputs, is_one ? 1 : 2);
    const Tensors more = with_batch_size(inputs, is_one ? 1 : 5);
    Tensors expected;
    program.is_usable = fuse(program, few, more, expected);
    if (program.is_usable) return;
    program.sizes.reset();
    program.code.reset();
    if (expected.empty()) model_.forward(inputs);  // throws if the model fails
    const std::lock_guard lock(full_mutex_);
    full_.reset();
  }

  /// Returns true if the graph gives the model's outputs, and if the graphs for
  /// a few and for more samples are the same once numbers that depend on the
  /// batch size are read from the batch.
  bool fuse(
      Program& program,
      const Tensors& few,
      const Tensors& more,
      Tensors& expected) {
    try {
      const ValueReads reads;
      const jit::Module module = traced(model_, few, expected);
      const bool has_read = reads.is_any();
      TracedSizes sizes(graph_of(module));
      const bool is_one = more[0].size(0) == 1;
      if (!is_one && sizes.learn(*graph_of(traced(model_, more, expected)))) {
        return false;
      }
      if (has_read) return false;
      const GraphPtr dynamic = graph_of(module)->copy();
      sizes.insert_into(*dynamic);
      const GraphPtr graph = constant_graph(module, *dynamic, "fused_model");
      if (!give_code(program, *graph, more, expected)) return false;
      program.sizes = std::move(sizes);
      program.add_checked(few[0].size(0));
      program.add_checked(more[0].size(0));
      return true;
    } catch (const c10::Error&) {          // tracing failed
    } catch (const std::runtime_error&) {  // or running with a different size
    }
    return false;
  }

  /// Creates a fused graph. Returns true if it gives the model's outputs.
  bool give_code(
      Program& program,
      jit::Graph& graph,
      const Tensors& batch,
      const Tensors& expected) {
    if (is_rounded_) return give_rounded_code(program, graph, batch, expected);
    for (const bool winograd : {true, false}) {
      program.code = fused_code(graph, {}, winograd, program.nonfinite_inputs);
      if (outputs_alike(expected, run(*program.code, batch))) return true;
    }
    return false;
  }

  /// The same in 16 bits, where outputs differ by rounding. The first graph's
  /// outputs must be about as close to the fp32 outputs as the model's are.
  /// After that, the fp32 model is released, and the next graph's outputs must
  /// be similarly close to the model's.
  bool give_rounded_code(
      Program& program,
      jit::Graph& graph,
      const Tensors& batch,
      const Tensors& expected) {
    constexpr double kFewRoundings = 0x1p-5;
    const std::lock_guard lock(full_mutex_);
    if (!full_ && noise_.empty()) return false;  // the first graph was rejected
    if (full_) full_weights_ = weights_of_convolutions(*full_);
    program.code =
        fused_code(graph, full_weights_, false, program.nonfinite_inputs);
    const Tensors outputs = run(*program.code, batch);
    if (!have_types_of(outputs, expected)) return false;
    const bool is_first = full_.has_value();
    const Tensors exact =
        is_first ? full_->forward(to_floats(batch)) : expected;
    std::vector<double> noise = noise_;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (is_first) noise.push_back(relative_distance(expected[i], exact[i]));
      const double allowed = (is_first ? 3 : 4) * noise.at(i) + kFewRoundings;
      // Also rejects NaN.
      if (!(relative_distance(outputs[i], exact[i]) <= allowed)) return false;
    }
    noise_ = noise;
    full_.reset();
    return true;
  }

  /// Handles the first batch of a size. A number that `forward` computes from
  /// the size would be wrong in the graph. The trace that detects this also
  /// provides the outputs.
  Tensors check(Program& program, const Tensors& inputs) {
    Tensors outputs;
    try {
      const ValueReads reads;
      const jit::Module module = traced(model_, inputs, outputs);
      const bool has_read = reads.is_any();
      if (has_read || program.sizes->compare(*graph_of(module))) {
        program.is_usable = false;
      } else {
        program.add_checked(inputs[0].size(0));
      }
    } catch (const c10::Error&) {  // of the model, or of tracing
    }
    return outputs.empty() ? model_.forward(inputs) : outputs;
  }

  static bool fits(const Program& program, const Tensors& inputs) {
    return std::ranges::equal(
        inputs,
        program.example,
        [](const torch::Tensor& input, const torch::Tensor& example) {
          return input.sizes().slice(1) == example.sizes().slice(1) &&
                 input.dim() == example.dim() &&
                 input.scalar_type() == example.scalar_type();
        });
  }

  const bool is_rounded_;
  std::mutex full_mutex_;
  std::optional<Model> full_;  // until the first graph is done
  NamedWeights full_weights_;
  std::vector<double> noise_;  // relative noise of the model's outputs
  std::array<Program, 2> programs_;
};

}  // namespace

Model fused_model(const Model& model, std::optional<Model> full) {
  return Model(std::make_shared<FusedModel>(model, std::move(full)));
}

}  // namespace tern
