#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/learner.h"
#include "tern/learner/report/op_hook.h"

namespace tern::testing_support {

/// An operation called directly by a forward pass.
struct ForwardOp {
  std::string name;                      // "aten::linear"
  std::vector<std::string> weights;      // state-dict names of its weights
  std::vector<torch::ScalarType> given;  // dtypes of its floating-point inputs
  std::vector<torch::ScalarType> types;  // of its floating results
};

/// The operations of a forward pass on the first validation batch, in order.
inline std::vector<ForwardOp> forward_ops(Learner& learn) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const ModelTensor& item : learn.model().state()) {
    names[item.tensor.unsafeGetTensorImpl()] = item.name;
  }
  std::vector<ForwardOp> ops;
  std::unique_ptr<OpHook> hook;
  const auto see = [&](const OpHook::Op& op) {
    if (op.depth > 0) return;
    ForwardOp& seen = ops.emplace_back();
    seen.name = op.name;
    for (const torch::Tensor& input : op.inputs) {
      if (input.is_floating_point()) {
        seen.given.push_back(input.scalar_type());
      }
      const auto own =
          input.is_view() && !names.contains(input.unsafeGetTensorImpl())
              ? names.find(input._base().unsafeGetTensorImpl())
              : names.find(input.unsafeGetTensorImpl());
      if (own != names.end()) seen.weights.push_back(own->second);
    }
    for (const torch::Tensor& output : op.outputs) {
      if (output.is_floating_point()) {
        seen.types.push_back(output.scalar_type());
      }
    }
  };
  const auto callback = [](LambdaCallbackOptions options) {
    return std::make_shared<LambdaCallback>(std::move(options));
  };
  const auto begin = callback(
      {.on_batch_begin =
           [&](Learner&) {
             if (ops.empty()) hook = std::make_unique<OpHook>(see);
           },
       .order = callback_order::kLast});
  const auto end = callback(
      {.on_loss_begin = [&](Learner&) { hook.reset(); },
       .order = callback_order::kFirst});
  learn.add(begin).add(end).validate();
  return ops;
}

}  // namespace tern::testing_support
