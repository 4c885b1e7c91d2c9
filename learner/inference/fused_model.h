#pragma once

#include "tern/learner/model.h"

namespace tern {

/// The same network for predictions in fp32 on a CPU: BatchNorm is folded into
/// the convolutions, oneDNN computes activations, residual additions and linear
/// layers on weights in the order that suits it, convolutions of 3 x 3 pixels
/// go by `winograd_conv2d`, channels last. Outputs are within 1e-4 of the
/// largest one of `model`. For NoGradGuard and eval mode; shares the tensors of
/// `model`, and forward may be called by several threads.
///
/// Made at the first batch, of its size and type, once for one sample and once
/// for several; each takes as much memory as the weights, four times that for
/// Winograd's, and a few forward passes. What has another size, a network that
/// reads values of tensors or sizes that depend on them, and one whose trace
/// has other outputs than itself, go through `model`. What a forward reads
/// through `data_ptr` is not seen.
///
/// A number that `forward` takes from the size of the batch is a constant of a
/// graph: the one for several samples is traced with two and with five, and
/// each other size of batch goes through `model` once, traced, before the graph
/// answers it. If two of the graphs differ, all go through `model`. Private to
/// Tern, for Predictor.
Model fused_model(const Model& model);

}  // namespace tern
