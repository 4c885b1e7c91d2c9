#pragma once

#include <torch/types.h>

namespace tern {

/// Returns a hash of a dense tensor's bits, for comparing large tensors of
/// several processes without copying them: [3] kLong, on the tensor's device,
/// with the same value on every device. Swapping elements within the first or
/// the second half of the tensor does not change the hash.
torch::Tensor tensor_hash(const torch::Tensor& tensor);

}  // namespace tern
