#pragma once

#include <string>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

/// The architecture name of an exported model that cannot be rebuilt by name.
/// Also the name of the tensor that contains its TorchScript graph and weights.
/// Private to Tern.
inline constexpr const char* kGraph = "torchscript";

/// Returns the model in eval mode and fp32 as a TorchScript file, [bytes]
/// kByte, traced with two samples of the data.
/// \param half  Store weights in fp16 where they fit; normalization layers stay
///              fp32.
/// \throws c10::ValueError if the graph's outputs for one sample differ from
///         the model's.
torch::Tensor graph_of(Learner& learn, bool half);

/// Loads a TorchScript model from bytes. The bytes are executable code.
/// \param file  For error messages.
/// \throws DataError if LibTorch cannot read the bytes.
Model model_of_graph(const torch::Tensor& bytes, const std::string& file);

/// True if all numbers of the tensor are within fp16's range.
bool fits_half(const torch::Tensor& tensor);

}  // namespace tern
