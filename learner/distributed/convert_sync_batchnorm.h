#pragma once

#include <memory>

#include "tern/learner/communicator.h"
#include "tern/learner/model.h"

namespace tern {

/// Lets every BatchNorm1d, 2d and 3d in the model normalise over the batches of
/// all ranks while it trains and the ranks live. Weights, statistics and names
/// stay as they are. What `to_distributed({.sync_batch_norm = true})` calls.
///
///   auto net = convert_sync_batchnorm(resnet18(), group);
///
/// Python puts other modules in the place of these; in C++ a member such as
/// `torch::nn::BatchNorm2d bn1` cannot be replaced from outside. So the modules
/// stay, and LibTorch's `batch_norm`, which they all call, hands those of this
/// model over to `sync_batch_norm`. A clone of the model is not converted. As
/// their own check comes first, each rank needs two values a channel, where
/// SyncBatchNorm needs one.
///
/// \return the same model.
/// \throws c10::ValueError if one of them keeps no running statistics;
///         c10::NotImplementedError for a TorchScript module.
Model convert_sync_batchnorm(
    Model model,
    const std::shared_ptr<Communicator>& ranks);

}  // namespace tern
