#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/model.h"

namespace tern {

namespace detail {

torch::Tensor data_parallel(
    const Model& model,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices);

}  // namespace detail

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
/// \return the joined output, on the first device.
template <class M>
torch::Tensor data_parallel(
    const std::shared_ptr<M>& module,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {}) {
  return detail::data_parallel(module, input, devices);
}

template <class Impl>
torch::Tensor data_parallel(
    const torch::nn::ModuleHolder<Impl>& module,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {}) {
  return data_parallel(module.ptr(), input, devices);
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
