#include "tern/learner/weights/fused_model.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/utils.h>

#include "tern/learner/model_around.h"
#include "tern/learner/weights/frozen_graph.h"
#include "tern/learner/weights/trace.h"

namespace tern {

namespace {

namespace jit = torch::jit;
using Numbers = std::vector<int64_t>;

/// The order of weights is chosen for a batch of one, or of this size.
constexpr int64_t kSeveral = 16;

/// An activation that oneDNN applies to what a convolution gives.
struct PostOp {
  std::string name;
  size_t arguments = 0;  // of the operator, which oneDNN is told
};

const PostOp* post_op_of(const jit::Node& node) {
  static const std::unordered_map<std::string, PostOp> activations = {
      {"relu", {"relu"}},
      {"sigmoid", {"sigmoid"}},
      {"tanh", {"tanh"}},
      {"silu", {"swish"}},
      {"hardswish", {"hardswish"}},
      {"hardsigmoid", {"hardsigmoid"}},
      {"hardtanh", {"hardtanh", 2}},
      {"leaky_relu", {"leaky_relu", 1}}};
  if (!node.kind().is_aten()) return nullptr;
  std::string name = node.kind().toUnqualString();
  if (name.ends_with('_')) name.pop_back();
  const auto found = activations.find(name);
  return found == activations.end() ? nullptr : &found->second;
}

Numbers sizes_of(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  return type ? type->sizes().concrete_sizes().value_or(Numbers()) : Numbers();
}

jit::Node* only_user(const jit::Value& value) {
  return value.uses().size() == 1 ? value.uses()[0].user : nullptr;
}

bool is_convolution(const jit::Node& node) {
  return node.kind() == c10::aten::_convolution;
}

/// A convolution of images with weights that are known.
bool can_be_fused(const jit::Node& node) {
  if (!is_convolution(node) || sizes_of(*node.input(0)).size() != 4) {
    return false;
  }
  const auto weight = jit::toIValue(node.input(1));
  return weight && weight->isTensor() && jit::toIValue(node.input(6)) &&
         !jit::toIValue(node.input(6))->toBool() &&
         weight->toTensor().scalar_type() == torch::kFloat;
}

/// Whether `sum` may be written where its operand is: nobody reads that later,
/// and it is no part of another tensor.
bool may_overwrite(const jit::Value& operand, const jit::Node& sum) {
  const auto makes_no_view = [](const jit::Node& node) {
    const std::string_view name = node.kind().toQualString();
    return is_convolution(node) ||
           name.starts_with("mkldnn::_convolution_pointwise");
  };
  return makes_no_view(*operand.node()) &&
         std::ranges::all_of(operand.uses(), [&](const jit::Use& use) {
           return use.user == &sum ||
                  (use.user->isBefore(&sum) && makes_no_view(*use.user));
         });
}

/// The weights in oneDNN's order for the sizes of this convolution.
jit::Value* packed_weight(const jit::Node& convolution, jit::Graph& graph) {
  Numbers input = sizes_of(*convolution.input(0));
  if (input[0] > 1) input[0] = kSeveral;
  const auto numbers = [&](size_t i) {
    return jit::toIValue(convolution.input(i))->toIntVector();
  };
  const torch::Tensor weight =
      jit::toIValue(convolution.input(1))->toTensor().detach();
  const torch::Tensor packed = at::mkldnn_reorder_conv2d_weight(
      weight.to_mkldnn(),
      numbers(4),
      numbers(3),
      numbers(5),
      jit::toIValue(convolution.input(8))->toInt(),
      at::IntArrayRef(input));
  jit::Node* const constant = graph.create(c10::prim::ConstantMKLDNNTensor);
  return graph.insertNode(constant->t_(c10::attr::value, packed))->output();
}

/// An addition of a tensor of the same size.
bool is_plain_sum(const jit::Node& node) {
  if (node.kind() != c10::aten::add && node.kind() != c10::aten::add_) {
    return false;
  }
  const Numbers sizes = sizes_of(*node.input(0));
  const auto alpha = jit::toIValue(node.input(2));
  return !sizes.empty() && sizes == sizes_of(*node.input(1)) && alpha &&
         alpha->toScalar().toDouble() == 1;
}

/// Whether something between the two writes into a tensor. A convolution that
/// moves down there might read what it was not given.
bool is_written_between(const jit::Node& convolution, const jit::Node& last) {
  for (const jit::Node* node = convolution.next(); node != &last;
       node = node->next()) {
    const c10::FunctionSchema* const schema = node->maybeSchema();
    if (schema != nullptr && schema->is_mutable()) return true;
  }
  return false;
}

/// Puts one operator of oneDNN in the place of a convolution, of the sum with
/// another tensor and of the activation, where they follow.
void fuse(jit::Node* convolution, jit::Graph& graph) {
  std::vector<jit::Node*> parts = {convolution};
  jit::Value* other = nullptr;
  jit::Node* next = only_user(*convolution->output());
  if (next != nullptr && is_plain_sum(*next) &&
      !is_written_between(*convolution, *next)) {
    other = next->input(next->input(0) == convolution->output() ? 1 : 0);
    parts.push_back(next);
    next = only_user(*next->output());
  }
  const PostOp* activation =
      next == nullptr || is_written_between(*parts.back(), *next)
          ? nullptr
          : post_op_of(*next);
  if (other != nullptr && activation && activation->name != "relu") {
    activation = nullptr;  // oneDNN's operator for sums has no other
  }
  if (activation != nullptr) parts.push_back(next);

  jit::Node* const last = parts.back();
  const jit::WithInsertPoint here(last);
  jit::Value* const nothing = graph.insertConstant(jit::IValue());
  jit::Value* name = nothing;
  std::vector<jit::Value*> arguments;
  if (activation != nullptr) {
    name = graph.insertConstant(activation->name);
    arguments = last->inputs().slice(1, activation->arguments).vec();
  } else if (other == nullptr) {
    name = graph.insertConstant("none");
  }
  jit::Value* const scalars =
      graph
          .insertNode(graph.createList(
              c10::OptionalType::create(c10::NumberType::get()),
              arguments))
          ->output();
  jit::Value* const weight = packed_weight(*convolution, graph);
  std::vector<jit::NamedValue> inputs = {convolution->input(0), weight};
  for (const size_t i : {2, 4, 3, 5, 8}) {  // bias, padding, stride, ...
    inputs.emplace_back(convolution->input(i));
  }
  std::string kind = "mkldnn::_convolution_pointwise";
  if (other != nullptr) {
    const bool is_in_place = may_overwrite(*other, *parts[1]);
    if (is_in_place) kind += '_';
    inputs.emplace(inputs.begin() + (is_in_place ? 0 : 1), other);
    inputs.emplace_back(graph.insertConstant("add"));
    inputs.emplace_back(graph.insertConstant(1.0));
  }
  inputs.insert(inputs.end(), {name, scalars, nothing});
  jit::Value* const result =
      graph.insert(c10::Symbol::fromQualString(kind), inputs);
  result->setType(last->output()->type());
  last->output()->replaceAllUsesWith(result);
  for (size_t i = parts.size(); i-- > 0;) parts[i]->destroy();
}

/// Whether what an operator returns, or its size, depends on values: LibTorch
/// has tags that say so, and misses four. A mask as an index is seen by the
/// nonzero within.
bool tells_values(const at::RecordFunction& function) {
  static constexpr std::array<std::string_view, 4> untagged = {
      "aten::equal",
      "aten::_unique",
      "aten::_pack_padded_sequence",
      "aten::tensor_split"};
  const auto name = function.operator_name();
  if (!name || name->name == "aten::index") return false;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  return std::ranges::count(untagged, name->name) > 0 ||
         (op && (op->hasTag(at::Tag::data_dependent_output) ||
                 op->hasTag(at::Tag::dynamic_output_shape)));
}

/// Notes whether this thread reads values of tensors while it lives: what a
/// network then decides, a trace decides once and for all.
class ValueReads {
 public:
  ValueReads()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(
                [](const at::RecordFunction& function)
                    -> std::unique_ptr<at::ObserverContext> {
                  is_any_ |= tells_values(function);
                  return nullptr;
                })
                .scopes({at::RecordScope::FUNCTION}))) {
    is_any_ = false;
  }
  ~ValueReads() { at::removeCallback(handle_); }
  ValueReads(const ValueReads&) = delete;
  ValueReads& operator=(const ValueReads&) = delete;

  bool is_any() const { return is_any_; }

 private:
  static inline thread_local bool is_any_ = false;
  at::CallbackHandle handle_;
};

/// What a model computes of such a batch, unless its values decide what.
std::optional<jit::Code> fused_code(Model& model, const Tensors& batch) {
  std::optional<jit::Module> traced;
  {
    const ValueReads reads;
    traced = trace(model, batch);
    if (reads.is_any()) return std::nullopt;
  }
  const auto graph = frozen_graph(*traced);
  std::vector<jit::Node*> convolutions;
  for (jit::Node* node : graph->nodes()) {
    if (can_be_fused(*node)) convolutions.push_back(node);
  }
  for (jit::Node* convolution : convolutions) fuse(convolution, *graph);
  jit::EliminateDeadCode(graph);
  return jit::Code(graph, "forward");
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

/// Whether the inputs are of one number of samples, at least one.
bool is_batch(const Tensors& inputs) {
  return !inputs.empty() &&
         std::ranges::all_of(inputs, [&](const torch::Tensor& input) {
           return input.dim() > 0 && input.size(0) > 0 &&
                  input.size(0) == inputs[0].size(0);
         });
}

class FusedModel final : public ModelAround {
 public:
  using ModelAround::ModelAround;

  Tensors forward(const Tensors& inputs) override {
    if (!is_batch(inputs) || !model_.module()) return model_.forward(inputs);
    Program& program = programs_[inputs[0].size(0) == 1 ? 0 : 1];
    make_once(program, inputs);
    if (!program.code || !fits(program, inputs)) return model_.forward(inputs);
    try {
      return run(*program.code, inputs);
    } catch (const std::runtime_error&) {  // the interpreter's for all errors
      return model_.forward(inputs);  // has the error without a graph's listing
    }
  }

 private:
  /// For one sample, or for several.
  struct Program {
    std::mutex making;
    std::atomic<bool> is_made = false;
    Tensors example;  // of one sample, with the batch's dimension
    std::optional<jit::Code> code;
  };

  /// Not std::call_once, which some platforms leave locked by an exception.
  void make_once(Program& program, const Tensors& inputs) {
    if (program.is_made) return;
    const std::lock_guard lock(program.making);
    if (program.is_made) return;
    make(program, inputs);
    program.is_made = true;
  }

  /// An error of the model itself is the caller's: the next batch tries again.
  void make(Program& program, const Tensors& inputs) {
    Tensors traced, checked;
    program.example.clear();
    for (const torch::Tensor& input : inputs) {
      const int64_t size = input.size(0);
      program.example.push_back(input.narrow(0, 0, 1).clone());
      traced.push_back(size == 1 ? input : input.narrow(0, 0, 2));
      checked.push_back(size == 2 ? torch::cat({input, input}) : input);
    }
    const Tensors expected = model_.forward(checked);
    try {
      const std::optional<jit::Code> code = fused_code(model_, traced);
      if (code && outputs_alike(expected, run(*code, checked))) {
        program.code = code;
      }
    } catch (const c10::Error&) {          // it cannot be traced
    } catch (const std::runtime_error&) {  // nor be run for another size
    }
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

  std::array<Program, 2> programs_;
};

}  // namespace

Model fused_model(const Model& model) {
  return Model(std::make_shared<FusedModel>(model));
}

}  // namespace tern
