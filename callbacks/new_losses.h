#pragma once

#include <cstdint>
#include <optional>

#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"

namespace tern {

/// What loggers write of each training batch.
struct BatchValues {
  int64_t iteration = 0;  // training batches before it, over all fits
  double loss = 0, smooth_loss = 0, lr = 0, momentum = 0;
};

/// The batches whose losses the Recorder has read from the device since the
/// last look, so that a logger never waits for the device by itself.
class NewLosses {
 public:
  /// At the start of a fit: earlier ones are no news.
  void begin() { has_begun_ = false; }
  /// At the start of each training batch. Not in on_train_begin: a resumed fit
  /// gets its earlier losses back after that.
  void on_batch_begin(Learner& learn) {
    if (!has_begun_) next_ = learn.recorder().losses().size();
    has_begun_ = true;
  }

  template <class F>
  void each(Learner& learn, const F& f) {
    const Recorder& recorder = learn.recorder();
    if (!has_begun_) return;
    for (; next_ < recorder.losses_read().size(); ++next_) {
      f(BatchValues{
          static_cast<int64_t>(next_),
          recorder.losses_read()[next_],
          recorder.smooth_losses_read()[next_],
          recorder.learning_rates()[next_],
          recorder.momentums()[next_]});
    }
  }

 private:
  size_t next_ = 0;
  bool has_begun_ = false;
};

/// The epochs that the Recorder has added since the last look. A checkpoint of
/// an epoch's end may be made before or after the logger's turn.
class NewEpochs {
 public:
  void on_epoch_begin(Learner& learn) {
    next_ = learn.recorder().epochs().size();
  }
  /// The epoch that ends is new, for a logger too that came in its middle.
  void on_epoch_end(Learner& learn) {
    if (!next_) next_ = learn.recorder().epochs().size() - 1;
  }

  template <class F>
  void each(Learner& learn, const F& f) {
    const auto& epochs = learn.recorder().epochs();
    while (next_ && *next_ < epochs.size()) f(epochs[(*next_)++]);
  }

 private:
  std::optional<size_t> next_;
};

}  // namespace tern
