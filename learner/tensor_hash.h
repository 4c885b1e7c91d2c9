#pragma once

#include <torch/types.h>

namespace tern {

/// A hash of a dense tensor's bits, to compare large tensors of several processes
/// without a copy: [3] kLong, on the tensor's device, the same on each. Elements
/// that change places within one half are not seen.
torch::Tensor tensor_hash(const torch::Tensor& tensor);

}  // namespace tern
