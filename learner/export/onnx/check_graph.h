#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/data/batch.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Compares what a graph gives with what its model gives, before it is written:
/// shapes, types and numbers, where NaN is NaN. Where the model rounds or
/// compares, rounding may decide otherwise: as many numbers may be others as the
/// model itself changes for inputs that differ by rounding, or one of 10,000.
///
/// \param samples    Inputs of several sizes. Those that the model itself does
///                   not take are left out, and the last ones are for the case
///                   that it takes none of the others.
/// \param forward    The model.
/// \param tolerance  Relative to the largest number of an output, or to 0.3.
/// \param rest       What the outputs after those of `forward` must be, of those
///                   that the graph gives: what decides by numbers, such as
///                   thresholds and order, is compared for the same numbers, so
///                   that no rounding before it counts.
/// \throws c10::ValueError saying which output differs, by how much, and for
///         which inputs; if no inputs could be computed, with the model's reason.
void check_graph(
    const OnnxGraph& graph,
    const std::vector<std::string>& output_names,
    const std::vector<Tensors>& samples,
    const std::function<Tensors(const Tensors&)>& forward,
    double tolerance,
    const std::function<Tensors(const Tensors&)>& rest = nullptr);

}  // namespace tern::onnx
