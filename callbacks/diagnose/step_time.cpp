#include "tern/callbacks/diagnose/step_time.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tern/callbacks/limit_batches.h"
#include "tern/learner/callback.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int64_t kWarmUpSteps = 2, kLeastSteps = 3, kMostSteps = 50;
constexpr Milliseconds kEnough{500};

// Ends the fit when enough steps were measured.
class StepTimer final : public Callback {
 public:
  void on_batch_begin(Learner& learn) override {
    if (!learn.state().training) return;
    start_ = learn.state().batch_arrived;  // an evaluation may change it
    // Assumes that this step takes as long as the last one.
    if (std::ssize(times_) + 1 >= kLeastSteps &&
        total_ + times_.back() >= kEnough) {
      learn.state().stop_training = true;  // this is the last step
    }
  }
  void on_batch_end(Learner& learn) override {
    if (!learn.state().training || done_++ < kWarmUpSteps) return;
    times_.push_back(Clock::now() - start_);
    total_ += times_.back();
  }
  int order() const override { return callback_order::kLast; }

  std::optional<double> median() {
    if (times_.empty()) return std::nullopt;
    const auto middle = times_.begin() + std::ssize(times_) / 2;
    std::ranges::nth_element(times_, middle);
    return middle->count();
  }

 private:
  Clock::time_point start_;
  int64_t done_ = 0;
  Milliseconds total_{0};
  std::vector<Milliseconds> times_;
};

}  // namespace

std::optional<double> step_milliseconds(
    Learner& learn,
    const LearningRates& lr,
    const std::function<void()>& set_up) {
  const auto timer = std::make_shared<StepTimer>();
  undo(learn, [&] {
    if (set_up) set_up();
    fit_batches(learn, kWarmUpSteps + kMostSteps, lr, {timer});
    check_not_stopped(learn);
  });
  return timer->median();
}

}  // namespace tern
