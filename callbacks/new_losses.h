#pragma once

#include <cstdint>

#include "tern/learner/learner.h"

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

}  // namespace tern
