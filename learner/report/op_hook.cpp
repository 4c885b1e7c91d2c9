#include "tern/learner/report/op_hook.h"

#include <memory>
#include <string_view>
#include <utility>

namespace tern {

namespace {

struct Observed {
  OpHook::Function function;
  int64_t depth = 0;
};

// The inputs of an operation can be read when it begins alone.
struct Begun final : at::ObserverContext {
  std::vector<torch::Tensor> inputs;
};

// A callback of LibTorch may capture nothing.
Observed& observed() {
  thread_local Observed observed;
  return observed;
}

void collect(const c10::IValue& value, std::vector<torch::Tensor>& tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(tensor);
    }
  }
}

template <class Values>
std::vector<torch::Tensor> tensors_of(const Values& values) {
  std::vector<torch::Tensor> tensors;
  for (const c10::IValue& value : values) collect(value, tensors);
  return tensors;
}

}  // namespace

OpHook::OpHook(Function function) {
  observed() = {std::move(function), 0};
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function)
              -> std::unique_ptr<at::ObserverContext> {
            ++observed().depth;
            auto begun = std::make_unique<Begun>();
            begun->inputs = tensors_of(function.inputs());
            return begun;
          },
          [](const at::RecordFunction& function, at::ObserverContext* context) {
            Observed& now = observed();
            --now.depth;
            const OpHook::Op op = {
                function.name(),
                now.depth,
                std::move(static_cast<Begun*>(context)->inputs),
                tensors_of(function.outputs())};
            now.function(op);
          })
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

OpHook::~OpHook() {
  at::removeCallback(handle_);
  observed() = {};
}

int64_t multiply_adds(const OpHook::Op& op) {
  const std::string_view name = op.name;
  if (op.outputs.empty()) return 0;
  const torch::Tensor& output = op.outputs[0];
  if (name == "aten::convolution" && op.inputs.size() >= 2) {
    const torch::Tensor &input = op.inputs[0], &weight = op.inputs[1];
    // Of a transposed one each input goes through the weight of its channel.
    const bool is_transposed =
        weight.size(0) == input.size(1) && weight.size(0) != output.size(1);
    return (is_transposed ? input : output).numel() * weight.numel() /
           weight.size(0);
  }
  const size_t first = name == "aten::addmm" || name == "aten::baddbmm" ? 1 : 0;
  const bool is_product = first == 1 || name == "aten::mm" ||
                          name == "aten::bmm" || name == "aten::mv";
  if (!is_product || op.inputs.size() < first + 2) return 0;
  return output.numel() * op.inputs[first].size(-1);
}

}  // namespace tern
