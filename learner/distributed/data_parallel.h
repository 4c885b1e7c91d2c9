#pragma once

#include <optional>
#include <vector>

#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

/// Computes one batch on several devices: splits `input`, runs a replica of
/// `model` on each part at the same time, and joins the outputs. Gradients
/// come back to `model`, added up in the order of the devices. PyTorch's
/// `nn.parallel.data_parallel`, in one process.
///
///   tern::AutocastGuard autocast(torch::kCUDA);
///   auto pred = tern::data_parallel(net, x);  // on all GPUs
///
/// Buffers (BatchNorm's statistics) are kept from the first replica, as in
/// Python. A device may be named twice, a CPU too. Each call compares the
/// replicas with the model; parallel_model, for loops, checks once.
///
/// \param model    Holder of, or shared_ptr to, a module that implements
///                 clone(), with forward(Tensor) -> Tensor.
/// \param input    [N, ...]; N >= 1. Fewer samples than devices leave the last
///                 devices without work.
/// \param devices  The first one is the model's. Unset: all CUDA devices.
/// \return the joined output, on the first device.
/// \throws as parallel_model.
torch::Tensor data_parallel(
    const Model& model,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {});

/// The model, computing each batch on several devices at once: inputs are split
/// along their first dimension, a replica answers each part in a thread of its
/// own, in the caller's autocast and gradient mode, and the answers are joined
/// on the first device. What `Learner::to_parallel` does.
///
/// Parameters, buffers, names and `module()` are the model's own; BatchNorm
/// sees its part of the batch alone. A model that was made so already gets
/// other devices. Random numbers of a device (dropout) are the same each time:
/// where it is named twice, its replicas run one after the other.
///
/// \param model    Implements clone(), as all that derive from
///                 torch::nn::Cloneable do. Its forward takes tensors
///                 [N, ...] and gives such.
/// \param devices  As for data_parallel.
/// \throws c10::ValueError if there is no device, or the model is not on the
///         first; c10::NotImplementedError for a TorchScript module, and for one
///         whose clones do not get all its values, by name.
Model parallel_model(const Model& model, std::vector<torch::Device> devices);

}  // namespace tern
