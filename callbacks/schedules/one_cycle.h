#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// First field of options structs that can be passed instead of learning rates.
/// It makes callers name the other fields, so that `{1e-5, 1e-3}` still means
/// two learning rates.
struct NamedFieldsOnly {
  explicit constexpr NamedFieldsOnly() = default;
};

/// Options of `Learner::fit_one_cycle`; the defaults are fastai v2's.
///
/// The learning rate rises along a cosine from max_lr / div to max_lr in the
/// first fraction `pct_start` of training, and falls to max_lr / div_final in
/// the rest; momentum moves in the opposite direction (Smith,
/// "Super-Convergence", 2017).
///
///   learn.fit_one_cycle(5, {.max_lr = 1e-2, .pct_start = 0.3});
struct OneCycleOptions {
  NamedFieldsOnly named_fields_only = NamedFieldsOnly();
  /// Unset: the Learner's learning rate.
  LearningRates max_lr = {};
  double div = 25;
  double div_final = 1e5;
  double pct_start = 0.25;
  /// Momentum at the start, at the highest learning rate and at the end.
  std::array<double, 3> moms = {0.95, 0.85, 0.95};
  /// Rounds the end of the rise to a whole step, as in fastai v1.
  bool whole_steps = false;

  /// Returns fastai v1's defaults.
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

/// Options of `flat_cos`; fastai v2's defaults.
struct FlatCosOptions {
  double div_final = 1e5;
  /// Fraction of training with a constant learning rate.
  double pct_start = 0.75;
};

/// fastai's fit_flat_cos: keeps the fit's learning rates constant, then anneals
/// them to lr / div_final along half a cosine.
///
///   learn.fit(5, 1e-3, {tern::flat_cos()});
std::shared_ptr<ParamScheduler> flat_cos(const FlatCosOptions& options = {});

struct SgdrOptions {
  int64_t cycles = 1;
  /// Each cycle is this many times as long as the previous one.
  int64_t cycle_mult = 2;
};

/// fastai's fit_sgdr: anneals from the fit's learning rates to 0 along a
/// cosine, with warm restarts (Loshchilov and Hutter, "SGDR", 2016).
///
///   learn.fit(7, 1e-2, {tern::sgdr({.cycles = 3})});  // 1 + 2 + 4 epochs
std::shared_ptr<ParamScheduler> sgdr(const SgdrOptions& options);

}  // namespace tern
