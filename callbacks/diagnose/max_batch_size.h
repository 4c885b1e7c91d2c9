#pragma once

#include <cstdint>

namespace tern {

class Learner;

/// Options of `max_batch_size`. During the search a copy of weights
/// and buffers lies beside them on the device, so it finds slightly less than
/// there is room for.
struct MaxBatchSizeOptions {
  /// Where to begin; 0: the loader's batch size.
  int64_t first = 0;
  /// Upper bound; 0: all training samples in one batch.
  int64_t most = 0;
  /// Bytes that a step may take beyond what is in use now. 0: on a GPU all that
  /// is free; on a CPU nine tenths of what the machine has left, because it
  /// ends the program instead of refusing.
  int64_t memory_limit = 0;
};

/// The largest batch size whose training step fits into memory, found by trials
/// that are undone; to 5 %.
/// \throws c10::ValueError if not even one sample fits.
int64_t max_batch_size(Learner& learn, const MaxBatchSizeOptions& options = {});

}  // namespace tern
