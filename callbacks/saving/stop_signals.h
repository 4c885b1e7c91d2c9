#pragma once

#include <optional>

#include "tern/learner/callback.h"

namespace tern {

/// While it lives, SIGTERM and SIGINT call the Learner's `request_stop` instead
/// of ending the program; what the program had set for them before is back
/// afterwards, and already when a second signal comes. One at a time: while
/// there is another, this one does nothing.
class StopSignals {
 public:
  explicit StopSignals(Learner& learner);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one has come.
  bool came() const;

 private:
  bool is_mine_ = false;
};

/// Has SIGTERM and SIGINT stop each fit, trials too, as `request_stop` does. A
/// signal that came in one fit stops the later ones at once.
class StopOnSignals final : public Callback {
 public:
  void on_train_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  int order() const override { return callback_order::kFirst; }

 private:
  std::optional<StopSignals> signals_;
  bool came_ = false;
};

}  // namespace tern
