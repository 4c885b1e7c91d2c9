#pragma once

#include <optional>
#include <string>

#include "tern/learner/callback.h"

namespace tern {

/// Ends the training when the loss is NaN or infinite, and says where and why.
///
///   learn.add<TerminateOnNaN>().fit(10);
///   // warning: TerminateOnNaN: the loss is nan in batch 12 of epoch 0. The
///   // batch's input 0 is not finite: check the data. Training ends.
///
/// On a CPU it checks before backward and skips the step. On a GPU it checks
/// whenever the Recorder has read losses, a few times a second and at the end
/// of an epoch, so that no step waits; by then later steps have been made. As
/// fastai v2, inf counts too.
class TerminateOnNaN final : public Callback {
 public:
  struct Found {
    int64_t epoch = 0, batch = 0;  // of the fit, from 0
    double loss = 0;
    /// What else was not finite: an input, the weights, or nothing but the
    /// loss.
    std::string cause;
  };
  /// Of the last fit; unset if the loss was always finite.
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
  size_t epoch_first_ = 0;  // the epoch's first place in the Recorder's losses
  size_t checked_ = 0;      // losses checked
};

}  // namespace tern
