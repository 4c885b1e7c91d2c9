#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>

namespace tern {

/// Replaces layers by fused operators in kFloat or kBFloat16: a linear layer
/// with the activation after it, and a convolution of images with the tensor
/// added to it and the activation. The operators are oneDNN's, or Tern's own
/// where they are faster (`winograd_conv2d`, `pointwise_conv2d`,
/// `depthwise_conv2d`, `global_average_pool`). They support only the sizes with
/// which the graph was traced, and their weights have the best layout for these
/// sizes. Some of oneDNN's activations replace NaN by a number, and Winograd
/// spreads it. Neither is used where an operator may create NaN from finite
/// inputs of the graph. A NaN in the inputs, or one that arises from overflow,
/// can be lost or spread.
/// \param graph  A graph from `frozen_graph`, with weights as constants. If it
///               was traced with one sample, weights are laid out for one
///               sample, otherwise for 16.
/// \param winograd  Allow `winograd_conv2d`, whose rounding error is larger.
/// \param nonfinite_inputs  Indices of the inputs in which NaN and infinity
///                          are not lost.
void fuse_layers(
    const std::shared_ptr<torch::jit::Graph>& graph,
    bool winograd,
    const std::vector<size_t>& nonfinite_inputs);

}  // namespace tern
