#pragma once

#include <cstdint>

namespace tern {

class Learner;

/// Options of `max_batch_size`. During the search the device also holds a copy
/// of weights and buffers, so the result is slightly smaller than the largest
/// size that would fit.
struct MaxBatchSizeOptions {
  /// First batch size to try; 0: the loader's.
  int64_t first = 0;
  /// Upper bound; 0: all training samples in one batch.
  int64_t most = 0;
  /// Bytes that a step may use beyond the memory that is already in use. 0: on
  /// a GPU all free memory; on a CPU 90% of the available memory, since running
  /// out of memory kills the program there.
  int64_t memory_limit = 0;
};

/// Returns the largest batch size whose training step fits into memory, within
/// 5%. Runs training steps to find it, and restores the Learner's state
/// afterwards.
/// \throws c10::ValueError if not even one sample fits.
int64_t max_batch_size(Learner& learn, const MaxBatchSizeOptions& options = {});

}  // namespace tern
