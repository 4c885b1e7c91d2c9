#include "tern/data/buffer_pool.h"

namespace tern {

torch::Tensor BufferPool::empty(
    c10::IntArrayRef sizes,
    torch::ScalarType dtype) {
  const auto options = torch::TensorOptions().dtype(dtype);
  if (pin_memory_) {
    return torch::empty(sizes, options.pinned_memory(true));
  }
  const std::lock_guard lock(mutex_);
  for (const torch::Tensor& tensor : tensors_) {
    const bool is_free =
        tensor.use_count() == 1 && tensor.storage().use_count() == 1;
    if (is_free && tensor.scalar_type() == dtype && tensor.sizes() == sizes) {
      return tensor;
    }
  }
  // Buffers of other shapes (an epoch's short last batch) go when they are
  // free, so that the pool never outgrows what is in use.
  std::erase_if(tensors_, [&](const torch::Tensor& tensor) {
    return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
           tensors_.size() > 64;
  });
  tensors_.push_back(torch::empty(sizes, options));
  return tensors_.back();
}

}  // namespace tern
