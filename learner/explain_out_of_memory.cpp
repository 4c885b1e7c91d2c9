#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/data/support/memory.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

int64_t bytes_of(const Model& model) {
  int64_t bytes = 0;
  for (const auto& tensors : {model.parameters(), model.buffers()}) {
    for (const ModelTensor& t : tensors) bytes += tensor_bytes(t.tensor);
  }
  for (const ModelTensor& p : model.parameters()) {
    if (p.tensor.grad().defined()) bytes += tensor_bytes(p.tensor.grad());
  }
  return bytes;
}

}  // namespace

std::string loop::precision_text(const LearnerParts& l) {
  if (l.precision) return l.precision->precision_text();
  const auto type = l.model.parameters().front().tensor.scalar_type();
  return type == torch::kFloat ? "fp32" : c10::toString(type);
}

void loop::explain_out_of_memory(
    LearnerParts& l,
    const std::exception& error,
    const char* part_of_step) {
  const std::string reason = message_of(error);
  if (!is_out_of_memory(error) || reason.starts_with("[Learner")) return;
  attach_scaled_gradients(l);
  const Tensors& inputs = l.state.batch_data.inputs;
  const std::string precision = precision_text(l);
  std::string batch = "batch";
  if (!inputs.empty()) {
    batch = fmt::format(
        "batch of {} samples ([{}] {})",
        l.state.batch_data.size(),
        fmt::join(inputs[0].sizes(), ", "),
        c10::toString(inputs[0].scalar_type()));
  }
  throw c10::OutOfMemoryError(
      {__func__, __FILE__, __LINE__},
      fmt::format(
          "[Learner] out of memory on {}, in {} of a {}, {}. Weights and "
          "gradients take {}; {} are free. Use a smaller batch size: "
          "max_batch_size(learn) finds the largest that fits, and "
          "GradientAccumulation keeps the effective batch size. "
          "{}ActivationCheckpoint trades time for memory. LibTorch: {}",
          l.data.device.str(),
          part_of_step,
          batch,
          precision,
          bytes_text(bytes_of(l.model)),
          bytes_text(available_memory(l.data.device)),
          precision == "fp32" ? "to_amp() or to_bf16() halve activations. "
                              : "",
          reason_of(error)));
}

}  // namespace tern
