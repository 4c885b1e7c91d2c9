#pragma once

#include <optional>

#include "tern/learner/model.h"

namespace tern {

/// The same network for predictions on a CPU, in fp32 or bfloat16: BatchNorm is folded into
/// the convolutions, oneDNN computes activations, residual additions and linear
/// layers on weights in the order that suits it, convolutions of 3 x 3 pixels
/// go by `winograd_conv2d` in fp32, channels last. Outputs are within 1e-4 of
/// the largest one of `model`; in bfloat16 they differ by rounding, and are
/// about as close to those in fp32. For NoGradGuard and eval mode; shares the tensors of
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
///
/// \param full  The same in fp32, of a model that was converted to bfloat16:
///     BatchNorm is folded into its weights before they are rounded, and its
///     outputs tell whether the fused network's are about as close as the
///     model's. Kept until the first batch is answered, convolutions' weights
///     for good. Without it such a model is not fused.
Model fused_model(const Model& model, std::optional<Model> full = {});

}  // namespace tern
