#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include "tern/callbacks/sets_learning_rate.h"
#include "tern/learner/callback.h"

namespace torch::optim {
class LRScheduler;
}

namespace tern {

/// Uses a scheduler of LibTorch as it is:
///
///   learn.fit(30, 0.1, {std::make_shared<TorchScheduler>([](auto& optimizer) {
///     return std::make_unique<torch::optim::StepLR>(optimizer, 10, 0.1);
///   })});
///
/// The scheduler is made when a fit begins, over the fit's rates, and advanced
/// at the end of each epoch, or of each batch whose step was made, with the
/// rates that Python's scheduler of that name gives. A step that was skipped
/// for an overflow does not advance it. (On CUDA with a fused optimizer only
/// the device knows of the skip, and every batch counts.)
class TorchScheduler final : public Callback, public SetsLearningRate {
 public:
  using Factory = std::function<std::unique_ptr<torch::optim::LRScheduler>(
      torch::optim::Optimizer&)>;
  struct Options {
    /// Advance after each batch; else after each epoch, PyTorch's custom.
    bool per_batch = false;
  };

  explicit TorchScheduler(Factory factory)
      : TorchScheduler(std::move(factory), {}) {}
  TorchScheduler(Factory factory, Options options);
  ~TorchScheduler() override;

  /// \throws c10::ValueError if another callback sets the learning rate too.
  void on_add(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// After those who note the rate of the step that was made.
  int order() const override { return callback_order::kEarlyStopping + 1; }

 private:
  void make();
  void advance();

  Factory factory_;
  Options options_;
  torch::optim::Optimizer* optimizer_ = nullptr;  // of the running fit
  std::vector<double> first_rates_;               // by parameter group
  std::unique_ptr<torch::optim::LRScheduler> scheduler_;
  int64_t advances_ = 0;  // of this fit
};

}  // namespace tern
