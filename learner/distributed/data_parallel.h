#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/model.h"

namespace tern {

namespace detail {

/// Runs all at once, one thread each, in the autocast and gradient mode of the
/// caller. Waits for all, then throws what the first one in order threw.
void run_together(std::vector<std::function<void()>> jobs);

torch::Tensor data_parallel(
    const Model& model,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices,
    int64_t dim);

}  // namespace detail

/// Calls `modules[i]->forward(inputs[i])` at the same time, one thread each, in
/// the caller's autocast and gradient mode: every replica computes in the same
/// types. (LibTorch's own parallel_apply leaves autocast behind in all threads
/// but the caller's, so that under bf16 replica 0 answers in bf16 and replica 1
/// in float.)
///
/// \return what each forward returned, in order.
/// \throws what the first failing forward threw, once all have ended.
template <class M>
Tensors parallel_apply(
    const std::vector<std::shared_ptr<M>>& modules,
    const Tensors& inputs) {
  TORCH_CHECK_VALUE(
      modules.size() == inputs.size(),
      "[parallel_apply] there are ",
      modules.size(),
      " modules and ",
      inputs.size(),
      " inputs; expected as many of both.");
  Tensors outputs(modules.size());
  std::vector<std::function<void()>> jobs;
  for (size_t i = 0; i < modules.size(); ++i) {
    jobs.emplace_back([&, i] { outputs[i] = modules[i]->forward(inputs[i]); });
  }
  detail::run_together(std::move(jobs));
  return outputs;
}

/// Computes one batch on several devices: splits `input`, runs a replica of
/// `module` on each part at the same time, and joins the outputs. Gradients
/// come back to `module`, added up in the order of the devices. PyTorch's
/// `nn.parallel.data_parallel`, in one process.
///
///   tern::AutocastGuard autocast(torch::kCUDA);
///   auto pred = tern::data_parallel(net, x);  // on all GPUs
///
/// Buffers (BatchNorm's statistics) are kept from the first replica, as in
/// Python. A device may be named twice, a CPU too.
///
/// \param module   Holder of, or shared_ptr to, a module with
///                 forward(Tensor) -> Tensor that implements clone().
/// \param input    [N, ...]; N >= 1. Fewer samples than devices leave the last
///                 devices without work.
/// \param devices  The first one is the module's. Unset: all CUDA devices.
/// \param dim      The dimension that is split and joined.
/// \return the joined output, on the first device.
template <class M>
torch::Tensor data_parallel(
    const std::shared_ptr<M>& module,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {},
    int64_t dim = 0) {
  return detail::data_parallel(module, input, devices, dim);
}

template <class Impl>
torch::Tensor data_parallel(
    const torch::nn::ModuleHolder<Impl>& module,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {},
    int64_t dim = 0) {
  return data_parallel(module.ptr(), input, devices, dim);
}

/// The model, computing each batch on several devices at once: inputs are split
/// along their first dimension, a replica answers each part in a thread of its
/// own, in the caller's autocast and gradient mode, and the answers are joined
/// on the first device. `data_parallel` for every model that the Learner knows;
/// what `Learner::to_parallel` does.
///
/// Parameters, buffers, names and `module()` are the model's own. Buffers are
/// kept from the first replica: BatchNorm sees its part of the batch alone. A
/// model that was made so already gets other devices.
///
/// \param model    Implements clone(), as all that derive from
///                 torch::nn::Cloneable do. Its forward takes tensors
///                 [N, ...] and gives such.
/// \param devices  The first one is the model's. A device may be named twice,
///                 a CPU too.
/// \throws c10::ValueError if there is no device, or the model is not on the
///         first; c10::NotImplementedError for a TorchScript module.
Model parallel_model(const Model& model, std::vector<torch::Device> devices);

}  // namespace tern
