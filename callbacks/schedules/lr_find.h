#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Options of `Learner::lr_find`; fastai's defaults.
struct LrFindOptions {
  /// First and last learning rate, the first below the last; slices give each
  /// layer group its own.
  LearningRates start = 1e-7, end = 10;
  /// Batches to train on; at least 6.
  int64_t num_it = 100;
  /// Stops when the smoothed loss exceeds four times its best or is NaN. fastai
  /// does not stop at NaN. The suggestions use the losses before the first NaN
  /// or infinite one; fastai's those before the first NaN.
  bool stop_div = true;
};

/// The losses that `Learner::lr_find` recorded and its suggestions. A
/// suggestion is unset when there were too few finite losses.
struct LrFind {
  /// Of the last layer group, and the smoothed loss, batch by batch.
  std::vector<double> lrs, losses;

  /// In the middle of the longest fall of the loss: the recommended one.
  std::optional<double> valley;
  /// Where the loss falls fastest.
  std::optional<double> steep;
  /// A tenth of the learning rate with the lowest loss.
  std::optional<double> minimum;
  /// The last learning rate before the slope changes for good.
  std::optional<double> slide;

  /// Draws loss over learning rate without the last five, which diverge, and
  /// the suggestions, as SVG or PNG by the file's extension.
  /// \throws IoError if the file cannot be written.
  void plot(const std::filesystem::path& file) const;
};

}  // namespace tern
