#include "tern/learner/weights/fused_model.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/utils.h>

#include "tern/learner/model_around.h"
#include "tern/learner/weights/frozen_graph.h"
#include "tern/learner/weights/fuse_layers.h"
#include "tern/learner/weights/trace.h"

namespace tern {

namespace {

namespace jit = torch::jit;

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
std::optional<jit::Code>
fused_code(Model& model, const Tensors& batch, bool winograd) {
  std::optional<jit::Module> traced;
  {
    const ValueReads reads;
    traced = trace(model, batch);
    if (reads.is_any()) return std::nullopt;
  }
  const auto graph = frozen_graph(*traced);
  fuse_layers(graph, winograd);
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
      for (const bool winograd : {true, false}) {
        const auto code = fused_code(model_, traced, winograd);
        if (!code) return;
        if (!outputs_alike(expected, run(*code, checked))) continue;
        program.code = code;
        return;
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
