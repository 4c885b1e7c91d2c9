#pragma once

#include <cstdint>

namespace tern {

/// Options of `Learner::tta`; fastai v2's defaults. fastai v1 has `beta` 0.4
/// and 8 passes, one for each corner and mirror image.
struct TtaOptions {
  /// Passes over the data, each with random numbers of its own for the
  /// transforms for training.
  int64_t n = 4;
  /// Weight of the plain pass; the augmented ones share the rest.
  double beta = 0.25;
  /// The largest of all answers instead of their mean.
  bool use_max = false;
};

}  // namespace tern
