#pragma once

namespace tern {

class Learner;

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

}  // namespace tern
