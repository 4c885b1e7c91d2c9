#pragma once

#include <optional>
#include <vector>

#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

/// Computes one batch on several devices: splits `input`, runs a replica of
/// `model` on each part in parallel, and concatenates the outputs. Gradients
/// are accumulated into `model`, summed in the order of the devices. PyTorch's
/// `nn.parallel.data_parallel`, in one process.
///
///   tern::AutocastGuard autocast(torch::kCUDA);
///   auto pred = tern::data_parallel(net, x);  // on all GPUs
///
/// Buffers (BatchNorm's statistics) are kept from the first replica, as in
/// Python. A device may be given twice, and CPUs are allowed. Every call
/// compares the replicas with the model; for training loops use parallel_model,
/// which checks only once.
///
/// \param model  Holder of, or shared_ptr to, a module that implements clone(),
///               with forward(Tensor) -> Tensor.
/// \param input  [N, ...]; N >= 1. With fewer samples than devices, the last
///               devices are not used.
/// \param devices  The first one must be the model's. Unset: all CUDA devices.
/// \return the concatenated output, on the first device.
/// \throws the errors of parallel_model.
torch::Tensor data_parallel(
    const Model& model,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {});

/// Returns a model that computes each batch on several devices in parallel:
/// inputs are split along their first dimension, replicas compute the parts in
/// separate threads with the caller's autocast and gradient mode, and the
/// outputs are concatenated on the first device. Used by
/// `Learner::to_parallel`.
///
/// Parameters, buffers, names and `module()` are the model's own. BatchNorm
/// sees only its part of the batch. If the model was returned by this function,
/// its devices are replaced. Replicas on the same device run one after the
/// other, so that the device's random numbers (dropout) are the same in every
/// run.
///
/// \param model  Implements clone(), as all classes derived from
///               torch::nn::Cloneable do. Its forward takes and returns tensors
///               [N, ...].
/// \param devices  As for data_parallel.
/// \throws c10::ValueError if there is no device, or if the model is not on the
///         first device; c10::NotImplementedError for a TorchScript module, and
///         for a model whose clones do not receive all its values, naming the
///         missing one.
Model parallel_model(const Model& model, std::vector<torch::Device> devices);

}  // namespace tern
