#pragma once

#include "tern/learner/metric.h"

// Precision, recall and their kin, exact over the whole set. Outputs are
// [N, C, ...] scores, or [N] or [N, 1, ...] logits of a binary classifier;
// targets are class numbers, and those outside 0..C-1 are left out.
namespace tern {

/// How the values of the classes become one.
enum class Average {
  automatic,  ///< binary with two classes, else macro
  binary,     ///< that of class 1
  macro,      ///< mean over the classes; 0 for a class that never comes up
  micro,      ///< all samples in one pot
  weighted,   ///< mean over the classes, weighted by their samples
};

/// Share of right answers among the samples that were called a class.
Metric precision(Average average = Average::automatic);

/// Share of a class's samples that were found.
Metric recall(Average average = Average::automatic);

/// Harmonic mean of precision and recall, recall counting `beta` times as much.
/// \param beta  > 0.
Metric f_beta(double beta = 2, Average average = Average::automatic);

/// f_beta with beta 1.
Metric f1(Average average = Average::automatic);

/// Overlap of predicted and true region, `2 |A and B| / (|A| + |B|)`, counted
/// over the whole set: of class 1 with two classes, else the mean over those
/// classes that come up. 1 when nothing is there and nothing was seen.
Metric dice();

}  // namespace tern
