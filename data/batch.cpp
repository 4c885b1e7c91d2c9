#include "tern/data/batch.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

// Calls `act` for each tensor of a batch.
template <class B, class Act>
void for_each_tensor(B& batch, const Act& act) {
  for (auto* const list : {&batch.inputs, &batch.targets}) {
    for (auto& tensor : *list) act(tensor);
  }
}

}  // namespace

int64_t Batch::size() const {
  return inputs.empty() || inputs[0].dim() == 0 ? 0 : inputs[0].size(0);
}

Batch Batch::to(torch::Device device, bool non_blocking) const {
  Batch moved = *this;
  for_each_tensor(moved, [&](torch::Tensor& tensor) {
    // to() goes through the dispatcher even if there is nothing to do.
    if (device.is_cpu() && tensor.is_cpu()) return;
    tensor = tensor.to(device, non_blocking);
  });
  return moved;
}

Batch CopyStream::to(torch::Device device, const Batch& batch) {
  bool is_dense = true;
  for_each_tensor(batch, [&](const torch::Tensor& tensor) {
    is_dense = is_dense && tensor.has_storage();
  });
  if (!device.is_cuda() || !is_dense) return batch.to(device);
  const c10::impl::VirtualGuardImpl cuda(device.type());
  if (!device.has_index()) device = cuda.getDevice();
  const c10::Stream computing = cuda.getStream(device);
  if (!stream_ || stream_->device() != device) {
    stream_ = cuda.getStreamFromGlobalPool(device);
  }
  Batch moved;
  {
    const c10::StreamGuard copying(*stream_);
    moved = batch.to(device);
  }
  c10::Event is_there(device.type());
  is_there.record(*stream_);
  is_there.block(computing);
  // The tensors' memory belongs to the copy stream, which must not reuse it
  // before the compute stream has read it.
  for_each_tensor(moved, [&](const torch::Tensor& tensor) {
    cuda.recordDataPtrOnStream(tensor.storage().data_ptr(), computing);
  });
  return moved;
}

torch::Tensor in_shape_of(
    const std::string& asker,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  if (pred.sizes() == target.sizes()) return target;
  TERN_CHECK_VALUE(
      pred.squeeze().sizes() == target.squeeze().sizes(),
      "[{}] outputs have shape [{}] and targets [{}]; expected the same shape. "
      "Reshape the targets in the dataset.",
      asker,
      fmt::join(pred.sizes(), ", "),
      fmt::join(target.sizes(), ", "));
  return target.reshape(pred.sizes());
}

}  // namespace tern
