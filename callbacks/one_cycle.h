#pragma once

#include <array>
#include <cstdint>

#include "tern/learner/learning_rates.h"

namespace tern {

/// First in options that a call takes in the place of learning rates: they have
/// to name their fields, so that `{1e-5, 1e-3}` goes on meaning two rates.
struct NamedFieldsOnly {
  explicit constexpr NamedFieldsOnly() = default;
};

/// Options of `Learner::fit_one_cycle`; the defaults are fastai v2's.
///
/// The rate goes on a cosine from max_lr / div up to max_lr in the first
/// `pct_start` of the training, and down to max_lr / div_final in the rest; the
/// momentum goes the other way (Smith, "Super-Convergence", 2017).
///
///   learn.fit_one_cycle(5, {.max_lr = 1e-2, .pct_start = 0.3});
struct OneCycleOptions {
  NamedFieldsOnly named_fields_only = NamedFieldsOnly();
  /// Unset: the Learner's own.
  LearningRates max_lr = {};
  double div = 25;
  double div_final = 1e5;
  double pct_start = 0.25;
  /// At the start, at the highest rate, at the end.
  std::array<double, 3> moms = {0.95, 0.85, 0.95};
  /// The rise ends on a whole step, as in fastai v1.
  bool whole_steps = false;

  /// fastai v1's defaults.
  static OneCycleOptions v1() {
    return {.div_final = 25e4, .pct_start = 0.3, .whole_steps = true};
  }
};

/// Options of `Learner::fine_tune`; fastai v2's defaults.
struct FineTuneOptions {
  int64_t freeze_epochs = 1;
  double base_lr = 2e-3;
  /// The first layer group learns so many times slower than the last.
  double lr_mult = 100;
  double pct_start = 0.3;
  double div = 5;
};

/// Options of `Learner::fit_flat_cos`; fastai v2's defaults.
struct FlatCosOptions {
  NamedFieldsOnly named_fields_only = NamedFieldsOnly();
  LearningRates lr = {};
  double div_final = 1e5;
  /// The rate stays flat for this part of the training.
  double pct_start = 0.75;
};

/// Options of `Learner::fit_sgdr`: warm restarts (Loshchilov and Hutter,
/// "SGDR", 2016).
struct SgdrOptions {
  NamedFieldsOnly named_fields_only = NamedFieldsOnly();
  LearningRates max_lr = {};
  /// Each cycle is so many times longer than the one before.
  int64_t cycle_mult = 2;
};

}  // namespace tern
