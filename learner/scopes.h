#pragma once

#include <map>
#include <optional>
#include <string>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/autocast.h"
#include "tern/learner/loop.h"
#include "tern/learner/sink_warnings.h"

namespace tern {

/// One `fit` from its checks to its on_train_end, which runs after an exception
/// too. Private to learner/.
class FitScope {
 public:
  FitScope(
      LearnerParts& l,
      int64_t epochs,
      const LearningRates& lr,
      Callbacks extra);
  ~FitScope();
  FitScope(const FitScope&) = delete;

  /// The ordinary end. Throws what the first on_train_end threw, once all
  /// have run.
  void end();

 private:
  std::exception_ptr run_train_end(bool failed);
  void leave();

  LearnerParts& l_;
  Callbacks extra_;
  size_t added_ = 0;  // of them
  std::map<std::string, std::string> settings_before_;
  bool is_open_ = true;
  // A guard around fit would keep 16-bit copies of weights that change.
  AutocastGuard no_autocast_;
  SinkWarnings warnings_;
};

/// A pass without training: no gradients, the model in eval, put back after. So
/// is the training step that a callback makes it in.
class EvalScope {
 public:
  explicit EvalScope(LearnerParts& l);
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;

  /// The ordinary end. Throws what the first on_eval_end threw.
  void end();

 private:
  struct Step {
    int64_t batch, batches;
    Batch batch_data;
    Tensors outputs, host_targets;
    torch::Tensor loss, loss_grad;
    Loss batch_loss;
  };

  void keep_step();
  void put_step_back();
  std::exception_ptr leave(bool failed);

  LearnerParts& l_;
  bool was_training_;
  std::optional<Step> step_;
  bool is_open_ = true;
  torch::NoGradGuard no_grad_;
  AutocastGuard no_autocast_;
  SinkWarnings warnings_;
};

}  // namespace tern
