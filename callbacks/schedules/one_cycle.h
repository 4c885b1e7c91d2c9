#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// The first field of options that a call takes in the place of learning rates:
/// makes callers name the other fields, so that `{1e-5, 1e-3}` still means two
/// learning rates.
struct NamedFieldsOnly {
  explicit constexpr NamedFieldsOnly() = default;
};

/// Options of `Learner::fit_one_cycle`; the defaults are fastai v2's.
///
/// The learning rate follows a cosine from max_lr / div up to max_lr in the
/// first `pct_start` of the training, and down to max_lr / div_final in the
/// rest; momentum moves the other way (Smith, "Super-Convergence", 2017).
///
///   learn.fit_one_cycle(5, {.max_lr = 1e-2, .pct_start = 0.3});
struct OneCycleOptions {
  NamedFieldsOnly named_fields_only = NamedFieldsOnly();
  /// Unset: the Learner's own.
  LearningRates max_lr = {};
  double div = 25;
  double div_final = 1e5;
  double pct_start = 0.25;
  /// Momentum at the start, at the highest learning rate, at the end.
  std::array<double, 3> moms = {0.95, 0.85, 0.95};
  /// Rounds the end of the rise to a whole step, as fastai v1.
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
  /// The last layer group's learning rate divided by the first one's.
  double lr_mult = 100;
  double pct_start = 0.3;
  double div = 5;
};

/// fastai v2's defaults.
struct FlatCosOptions {
  double div_final = 1e5;
  /// Part of the training with a constant learning rate.
  double pct_start = 0.75;
};

/// fastai's fit_flat_cos: the fit's learning rates, then half a cosine down.
///
///   learn.fit(5, 1e-3, {tern::flat_cos()});
std::shared_ptr<ParamScheduler> flat_cos(const FlatCosOptions& options = {});

struct SgdrOptions {
  int64_t cycles = 1;
  /// Each cycle is so many times as long as the one before.
  int64_t cycle_mult = 2;
};

/// fastai's fit_sgdr: cosines from the fit's learning rates down to 0, with
/// warm restarts (Loshchilov and Hutter, "SGDR", 2016).
///
///   learn.fit(7, 1e-2, {tern::sgdr({.cycles = 3})});  // 1 + 2 + 4 epochs
std::shared_ptr<ParamScheduler> sgdr(const SgdrOptions& options);

}  // namespace tern
