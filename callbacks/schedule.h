#pragma once

#include <functional>
#include <vector>

namespace tern {

/// A value over a training: `schedule(position)`, with position 0 at the first
/// step and 1 after the last.
using Schedule = std::function<double(double position)>;

/// The usual ones; fastai's SchedNo, SchedLin, SchedCos, SchedExp, SchedPoly,
/// combine_scheds and combined_cos.
namespace schedule {

Schedule constant(double value);
Schedule linear(double start, double end);
/// Half a cosine wave from `start` to `end`: slow, fast, slow.
Schedule cosine(double start, double end);
/// Geometric. \throws c10::ValueError unless both are > 0.
Schedule exponential(double start, double end);
/// `start + (end - start) * position ^ power`, power > 0.
Schedule polynomial(double start, double end, double power);

/// A part of a training and what happens in it.
struct Phase {
  double part;  // of the whole, > 0
  Schedule schedule;
};

/// One after the other.
/// \throws c10::ValueError unless the parts are positive and add up to 1.
Schedule phases(std::vector<Phase> phases);

/// Cosine from `start` to `middle` in the first `part`, then on to `end`.
Schedule combined_cosine(double part, double start, double middle, double end);

}  // namespace schedule
}  // namespace tern
