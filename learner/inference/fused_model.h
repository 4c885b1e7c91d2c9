#pragma once

#include <optional>

#include "tern/learner/model.h"

namespace tern {

/// Returns a faster version of a network for predictions on a CPU, in fp32 or
/// bfloat16. BatchNorm is folded into convolutions, and oneDNN computes
/// activations, residual additions and linear layers, with weights in its
/// preferred layout. In fp32, convolutions of 3 x 3 pixels use
/// `winograd_conv2d`. Small convolutions of 1 x 1 pixels, depthwise
/// convolutions of one image and means of channels use kernels of Tern's own.
/// Images are channels last. Outputs differ from the outputs of `model` by at
/// most 1e-4 of its largest output. In bfloat16 they differ by rounding, and
/// are about as close to the fp32 outputs as the outputs of `model`. Call the
/// result in eval mode under NoGradGuard; several threads may call its forward.
/// It shares the tensors of `model`.
///
/// Graphs are created at the first batch, for its size and dtype: one for a
/// single sample and one for several samples. Each needs as much memory as the
/// weights (four times as much for Winograd's weights) and the time of a few
/// forward passes. The result falls back to `model` itself for samples of other
/// sizes, for inputs with NaN, for inputs with infinity unless the graph's first
/// batch also had it (as masks for attention do), for a network that reads
/// tensor values or sizes that depend on them, and for a network whose trace has
/// different outputs. Reads through `data_ptr` are not detected.
///
/// A number that `forward` computes from the batch size is a constant in a
/// graph. The graph for several samples is therefore traced with two and with
/// five samples. The first batch of any other size runs through `model` and is
/// traced, before the graph is used for that size. If two of these graphs
/// differ, all batches of several samples run through `model`. Private to Tern,
/// for Predictor.
///
/// \param full  For a model that was converted to bfloat16: the same model in
///              fp32. BatchNorm is folded into its weights before they are
///              rounded. Its outputs are the reference for checking that the
///              fused network is about as exact as `model`. Kept until the
///              first batch is predicted; the weights of its convolutions are
///              kept for as long as the result exists. If unset, such a model
///              is not fused.
Model fused_model(const Model& model, std::optional<Model> full = {});

}  // namespace tern
