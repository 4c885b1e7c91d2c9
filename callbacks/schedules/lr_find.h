#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Options of `Learner::lr_find`; fastai's defaults.
struct LrFindOptions {
  /// First and last learning rate, the first one below the last; slices give
  /// each layer group its own.
  LearningRates start = 1e-7, end = 10;
  /// Number of batches to train on; at least 6.
  int64_t num_it = 100;
  /// Stops when the smoothed loss exceeds four times its best or is NaN; fastai
  /// does not stop at NaN. The suggestions use only the losses before the first
  /// NaN or infinity (in fastai, before the first NaN).
  bool stop_div = true;
};

/// Losses recorded by `Learner::lr_find`, and its suggestions. A suggestion is
/// unset if there were too few finite losses.
struct LrFind {
  /// Learning rate of the last layer group, and smoothed loss, for each batch.
  std::vector<double> lrs, losses;

  /// The middle of the longest descent of the loss; recommended.
  std::optional<double> valley;
  /// Where the loss falls fastest.
  std::optional<double> steep;
  /// A tenth of the learning rate with the lowest loss.
  std::optional<double> minimum;
  /// The last learning rate before the slope changes for good.
  std::optional<double> slide;

  /// Plots the loss over the learning rate, without the last five points, which
  /// diverge, and marks the suggestions. Writes SVG or PNG, chosen by the
  /// file's extension.
  /// \throws IoError if the file cannot be written.
  void plot(const std::filesystem::path& file) const;
};

}  // namespace tern
