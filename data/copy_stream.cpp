#include "tern/data/copy_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tern {

namespace {

bool is_dense(const Batch& batch) {
  for (const Tensors* const list : {&batch.inputs, &batch.targets}) {
    for (const torch::Tensor& tensor : *list) {
      if (!tensor.has_storage()) return false;
    }
  }
  return true;
}

}  // namespace

Batch CopyStream::to(torch::Device device, const Batch& batch) {
  if (!device.is_cuda() || !is_dense(batch)) return batch.to(device);
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
  // Their memory belongs to the copying stream, which must not write there
  // again before the computing one has read it.
  for (const Tensors* const list : {&moved.inputs, &moved.targets}) {
    for (const torch::Tensor& tensor : *list) {
      cuda.recordDataPtrOnStream(tensor.storage().data_ptr(), computing);
    }
  }
  return moved;
}

}  // namespace tern
