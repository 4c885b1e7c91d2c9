#pragma once

#include <memory>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Puts one operator in the place of each linear layer and the activation that
/// follows, and of each convolution of images, the tensor that is added to it
/// and the activation, in kFloat or kBFloat16: for the sizes that the graph was
/// traced with, with weights in the order that suits them. Of oneDNN, or
/// `winograd_conv2d` where that pays.
/// \param graph  As `frozen_graph` gives it, with weights as constants. A batch
///     of one stays one; weights of others are for some 16 samples.
/// \param winograd  Whether it may, with its larger rounding error.
void fuse_layers(
    const std::shared_ptr<torch::jit::Graph>& graph,
    bool winograd);

}  // namespace tern
