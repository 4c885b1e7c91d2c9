#pragma once

#include <torch/types.h>

namespace tern {

/// Returns a hash of a dense tensor's bits, to compare large tensors between
/// processes without copying them: [3] kLong, on the tensor's device. All
/// devices compute the same value. Swapping elements within the first or the
/// second half of the tensor does not change the hash.
torch::Tensor tensor_hash(const torch::Tensor& tensor);

}  // namespace tern
