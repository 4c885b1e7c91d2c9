#include "tern/data/batch.h"

namespace tern {

int64_t Batch::size() const {
  return inputs.empty() || inputs[0].dim() == 0 ? 0 : inputs[0].size(0);
}

Batch Batch::to(torch::Device device, bool non_blocking) const {
  Batch moved = *this;
  for (Tensors* list : {&moved.inputs, &moved.targets}) {
    for (torch::Tensor& tensor : *list) {
      // Even to do nothing, to() goes through the dispatcher.
      if (device.is_cpu() && tensor.is_cpu()) continue;
      tensor = tensor.to(device, non_blocking);
    }
  }
  return moved;
}

}  // namespace tern
