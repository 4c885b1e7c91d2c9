#pragma once

#include <optional>

#include <c10/core/Stream.h>

#include "tern/data/batch.h"

namespace tern {

/// Takes batches to a GPU on a stream of its own, so that they travel while
/// the GPU still computes with the batch before; from page-locked memory, as
/// the DataLoader makes it. There is memory on the GPU for as many batches as
/// the host is ahead.
class CopyStream {
 public:
  /// The batch on `device`, the CPU or a CUDA device. What is given to the
  /// device's current stream from now on waits for it there; the host does not.
  Batch to(torch::Device device, const Batch& batch);

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace tern
