#include "tern/learner/tensor_hash.h"

namespace tern {

// LibTorch's own hash is the XOR of the bits of all elements, which is 0 for an
// even number of equal elements.
torch::Tensor tensor_hash(const torch::Tensor& tensor) {
  const auto options = tensor.options().dtype(torch::kLong);
  if (tensor.numel() == 0) return torch::zeros({3}, options);
  torch::Tensor bits = tensor.contiguous().flatten();
  if (bits.is_complex()) bits = torch::view_as_real(bits).flatten();
  switch (bits.element_size()) {
    case 8:
      bits = bits.view(torch::kLong);
      break;
    case 4:
      bits = bits.view(torch::kInt);
      break;
    case 2:
      bits = bits.view(torch::kShort);
      break;
    default:
      bits = bits.view(torch::kByte);
  }
  return torch::stack(
      {at::hash_tensor(bits).view(torch::kLong),
       bits.sum(torch::kLong),
       bits.narrow(0, 0, bits.size(0) / 2).sum(torch::kLong)});
}

}  // namespace tern
