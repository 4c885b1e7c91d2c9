#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tern/learner/callback.h"

namespace tern {

/// Finds code that synchronizes the host with the GPU during a training step,
/// for example by reading a value (`loss.item()`, `x.nonzero()`, a copy to the
/// CPU). Each synchronization delays the queueing of further work.
///
///   learn.add<SyncAudit>().fit(1);
///
///   SyncAudit: 61 steps, where the host synchronizes with the device:
///   LossLogger in on_batch_end: aten::_local_scalar_dense, 61 times
///
/// On a GPU it reports the synchronizations that LibTorch detects. On a CPU it
/// lists the operations that would synchronize on a GPU, except copies to the
/// CPU, so that a program can be checked without a GPU. Covers only the time
/// between on_batch_begin and on_batch_end of training, and excludes
/// evaluations that a callback starts.
class SyncAudit final : public Callback {
 public:
  struct Options {
    /// Number of steps to skip at the start of each fit, since they include
    /// one-time setup.
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

  /// Findings of the last fit, in order of first occurrence.
  const std::vector<Finding>& findings() const { return findings_; }
  /// Number of steps recorded.
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
  // Records what runs next: the event's callbacks, then this part of the step.
  void enter(const char* event, const char* part);
  void found(const Learner& learn, const std::string& what);
  void show(Learner& learn) const;

  Options options_;
  std::vector<Finding> findings_;
  int64_t steps_ = 0, seen_ = 0;
  int64_t evaluations_ = 0;  // running inside a step
  const char *event_ = "", *part_ = "";
  std::shared_ptr<Callback> last_;  // stops recording after all others
  std::unique_ptr<Watch> watch_;
};

}  // namespace tern
