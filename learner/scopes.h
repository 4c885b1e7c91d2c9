#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include <c10/util/Exception.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/loop.h"

namespace tern {

/// Autocast that is on around a fit or an evaluation would keep 16-bit copies
/// of weights that change: off while this lives.
class NoAutocast {
 public:
  explicit NoAutocast(torch::Device device);
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_on_;
};

/// Sends LibTorch's warnings of this thread to a sink while it lives, each text
/// once: those of GradScaler too, which uses LibTorch's way to warn.
class SinkWarnings final : public c10::WarningHandler {
 public:
  explicit SinkWarnings(SinkImpl& sink) : sink_(sink), guard_(this) {}
  void process(const c10::Warning& warning) override {
    if (told_.insert(warning.msg()).second) sink_.warning(warning.msg());
  }

 private:
  SinkImpl& sink_;
  std::set<std::string> told_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

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
  NoAutocast no_autocast_;
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
  NoAutocast no_autocast_;
  SinkWarnings warnings_;
};

}  // namespace tern
