#pragma once

#include <cstdint>

namespace tern {

/// Options of `Learner::max_batch_size`. While it looks, a copy of weights and
/// buffers lies beside them on the device, so that it finds a little less than
/// there is.
struct MaxBatchSizeOptions {
  /// Where to begin; 0: the loader's batch size.
  int64_t first = 0;
  /// Not more than this; 0: all training samples in one batch.
  int64_t most = 0;
  /// Bytes that a step may take beyond what is in use now. 0: on a GPU as much
  /// as there is, on a CPU nine tenths of what the machine has left, since it
  /// does not say no but ends the program.
  int64_t memory_limit = 0;
  /// Training steps of a trial: the first makes the optimizer's state, the
  /// second is like all that come.
  int64_t steps = 2;
};

}  // namespace tern
