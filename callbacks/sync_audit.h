#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tern/learner/callback.h"

namespace tern {

/// Finds what makes the host wait for the device in a training step: somebody
/// reads a value (`loss.item()`, `x.nonzero()`, a copy to the CPU), and until
/// it is there no more work goes to the GPU.
///
///   learn.add<SyncAudit>().fit(1);
///
///   SyncAudit: 61 steps, where the host waits for the device:
///   LossLogger in on_batch_end: aten::_local_scalar_dense, 61 times
///
/// On a GPU these are the waits that LibTorch itself knows of. A CPU never
/// waits; there it lists operations that would on a GPU, so that a machine
/// without one can check a program too; a copy to the CPU is not seen there.
/// Only what is between on_batch_begin and on_batch_end of training counts, and
/// no validation that a callback makes meanwhile: reading now and then is no
/// harm.
class SyncAudit final : public Callback {
 public:
  struct Options {
    /// Steps of each fit that are left out: some things are made in the first.
    int64_t warm_up = 3;
    /// Tell the sink when a fit ends.
    bool show = true;
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
  /// How many steps were watched.
  int64_t steps() const { return steps_; }

  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_backward_end(Learner& learn) override;
  void on_step(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_eval_begin(Learner& learn) override;
  void on_eval_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kFirst; }

 private:
  class Last;
  class Watch;
  // What runs from here on: the event's callbacks, then that part of the step.
  void enter(const char* event, const char* part);
  void found(const Learner& learn, const std::string& what);
  void show(Learner& learn) const;

  Options options_;
  std::vector<Finding> findings_;
  int64_t steps_ = 0, seen_ = 0;
  int64_t passes_ = 0;  // without training, that run inside of a step
  const char *event_ = "", *part_ = "";
  std::shared_ptr<Last> last_;  // stops watching after all others
  std::unique_ptr<Watch> watch_;
};

}  // namespace tern
