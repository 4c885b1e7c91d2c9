#pragma once

#include <optional>
#include <string>

#include "tern/learner/callback.h"

namespace tern {

/// Ends training when the loss is NaN or infinite, and logs where and why.
///
///   learn.add<TerminateOnNaN>().fit(10);
///   // warning: TerminateOnNaN: the loss is nan in batch 12 of epoch 0.
///   // Input 0 of the batch is not finite: check the data. Training ends.
///
/// On a CPU it checks before backward and skips the step. On a GPU it checks
/// each time the Recorder has read losses (a few times per second and at the
/// end of an epoch), so that no step synchronizes with the device. A few more
/// steps may have run by then. As in fastai v2, infinity counts too.
class TerminateOnNaN final : public Callback {
 public:
  struct Found {
    int64_t epoch = 0, batch = 0;  // of the fit, from 0
    double loss = 0;
    /// What else was not finite: an input, the weights, or only the loss.
    std::string cause;
  };
  /// What the last fit found; unset if the loss was always finite.
  const std::optional<Found>& found() const { return found_; }

  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kTerminate; }

 private:
  void look_at_losses_read(Learner& learn);
  void terminate(Learner& learn, Found found);

  std::optional<Found> found_;
  size_t epoch_first_ = 0;  // first loss of this epoch in the Recorder
  size_t checked_ = 0;      // number of losses checked
};

}  // namespace tern
