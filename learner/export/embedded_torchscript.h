#pragma once

#include <string>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

/// In an exported model that no name can build again, the name of its
/// architecture, and of the tensor with its TorchScript graph and weights.
/// Private to Tern.
inline constexpr const char* kGraph = "torchscript";

/// The model in eval mode and fp32 as a TorchScript file, [bytes] kByte, traced
/// with two samples of the data.
/// \param half  Weights that fit as fp16; norms stay fp32.
/// \throws c10::ValueError if the graph answers one sample otherwise than the
///         model.
torch::Tensor graph_of(Learner& learn, bool half);

/// Runs what is in the bytes: a program.
/// \param file  For the error message.
/// \throws DataError if LibTorch cannot read them.
Model model_of_graph(const torch::Tensor& bytes, const std::string& file);

/// Whether no number of the tensor is beyond fp16.
bool fits_half(const torch::Tensor& tensor);

}  // namespace tern
