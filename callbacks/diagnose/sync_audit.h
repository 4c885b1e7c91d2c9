#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tern/learner/callback.h"

namespace tern {

/// Finds what makes the host wait for the GPU in a training step: code that
/// reads a value (`loss.item()`, `x.nonzero()`, a copy to the CPU), so that no
/// more work is queued until it has arrived.
///
///   learn.add<SyncAudit>().fit(1);
///
///   SyncAudit: 61 steps, where the host waits for the device:
///   LossLogger in on_batch_end: aten::_local_scalar_dense, 61 times
///
/// On a GPU these are the waits that LibTorch itself reports. On a CPU, which
/// never waits, it lists operations that would wait on a GPU, so that a program
/// can be checked without one; copies to the CPU are not seen there. Only what
/// happens between on_batch_begin and on_batch_end of training counts, and no
/// evaluation by a callback meanwhile.
class SyncAudit final : public Callback {
 public:
  struct Options {
    /// Steps of each fit that are left out: the first ones set things up.
    int64_t warm_up = 3;
  };
  struct Finding {
    std::string where;  // "LossLogger in on_batch_end", "the model", ...
    std::string what;   // the operation
    int64_t count = 0;
  };

  explicit SyncAudit(Options options);
  SyncAudit() : SyncAudit(Options{}) {}
  ~SyncAudit() override;

  /// Of the last fit, in the order in which they were seen first.
  const std::vector<Finding>& findings() const { return findings_; }
  /// The number of steps watched.
  int64_t steps() const { return steps_; }

  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner&) override { enter("on_loss_begin", "the loss"); }
  void on_backward_begin(Learner&) override {
    enter("on_backward_begin", "backward");
  }
  void on_backward_end(Learner&) override {
    enter("on_backward_end", "backward");
  }
  void on_step(Learner&) override { enter("on_step", "the optimizer"); }
  void on_step_end(Learner&) override { enter("on_step_end", "the optimizer"); }
  void on_batch_end(Learner&) override { enter("on_batch_end", "the loop"); }
  void on_eval_begin(Learner&) override { ++evaluations_; }
  void on_eval_end(Learner&) override { --evaluations_; }
  void on_train_end(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kFirst; }
  OptionValues option_values() const override;

 private:
  class Watch;
  // What runs from here on: the event's callbacks, then that part of the step.
  void enter(const char* event, const char* part);
  void found(const Learner& learn, const std::string& what);
  void show(Learner& learn) const;

  Options options_;
  std::vector<Finding> findings_;
  int64_t steps_ = 0, seen_ = 0;
  int64_t evaluations_ = 0;  // that run inside a step
  const char *event_ = "", *part_ = "";
  std::shared_ptr<Callback> last_;  // stops watching after all others
  std::unique_ptr<Watch> watch_;
};

}  // namespace tern
