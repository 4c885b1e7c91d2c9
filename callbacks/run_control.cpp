#include "tern/callbacks/run_control.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

// request_stop may be called by a signal handler, which cannot notify a
// condition variable.
constexpr std::chrono::milliseconds kStopPoll(50);

// A request that fails does not end training.
template <class Act>
void or_warn(Learner& learn, const char* consequence, const Act& act) {
  try {
    act();
  } catch (const DistributedError&) {
    throw;  // the ranks are out of sync
  } catch (const std::exception& error) {
    learn.options().sink->warning(
        fmt::format("RunControl: {}. {}", consequence, message_of(error)));
  }
}

}  // namespace

void RunControl::request(const std::function<void()>& change) {
  const std::lock_guard lock(mutex_);
  change();
  has_news_ = true;
  changed_.notify_all();
}

void RunControl::pause() {
  request([&] { should_pause_ = true; });
}

void RunControl::resume() {
  request([&] { should_pause_ = false; });
}

void RunControl::set_learning_rates(LearningRates lr) {
  request([&] { rates_ = std::move(lr); });
}

void RunControl::release_learning_rates() {
  request([&] { rates_ = LearningRates{}; });
}

void RunControl::request_checkpoint(std::filesystem::path folder) {
  request([&] { checkpoint_folder_ = std::move(folder); });
}

void RunControl::on_train_begin(Learner& learn) {
  learn_ = &learn;
  if (has_news_) use_rates(learn);
}

// Runs after the schedules and overrides them.
void RunControl::on_batch_begin(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training || used_rates_.empty()) return;
  loop::set_hyper_parameter(parts_of(learn), HyperParameter::lr, used_rates_);
}

void RunControl::on_batch_end(Learner& learn) {
  if (!learn.state().training) return;
  const bool has_news = has_news_.exchange(false);
  if (has_news) use_rates(learn);
  if (!has_news && communicator(learn).world_size() == 1) return;
  Wishes wishes = wishes_of_all_ranks(learn);
  if (wishes.checkpoint) write_checkpoint(learn);
  // Ranks cannot save within an accumulation window; they pause after its step.
  const bool can_pause =
      communicator(learn).world_size() == 1 || !learn.state().accumulating;
  while (can_pause && wishes.pause && !wishes.stop) {
    is_paused_ = true;
    wait_for_news();
    if (has_news_.exchange(false)) use_rates(learn);
    wishes = wishes_of_all_ranks(learn);
    if (wishes.checkpoint) write_checkpoint(learn);
  }
  is_paused_ = false;
}

void RunControl::on_train_end(Learner&) {
  learn_ = nullptr;
  is_paused_ = false;
  used_rates_.clear();
  own_rates_.clear();
}

template <class T>
std::optional<T> RunControl::take(std::optional<T>& wish) {
  const std::lock_guard lock(mutex_);
  return std::exchange(wish, std::nullopt);
}

void RunControl::use_rates(Learner& learn) {
  const auto rates = take(rates_);
  if (!rates) return;
  if (rates->empty()) {
    // A schedule sets its own value before the next batch.
    if (!own_rates_.empty()) {
      loop::set_hyper_parameter(
          parts_of(learn),
          HyperParameter::lr,
          own_rates_);
    }
    used_rates_.clear();
    own_rates_.clear();
    return;
  }
  or_warn(learn, "the learning rates are unchanged", [&] {
    used_rates_ = rates->resolve(parts_of(learn).groups.size(), 0);
    if (own_rates_.empty()) own_rates_ = learn.learning_rates();
  });
}

// All ranks carry out the requests of each rank, at the same step.
RunControl::Wishes RunControl::wishes_of_all_ranks(Learner& learn) {
  const StopRequest& stop = parts_of(learn).stop;
  const bool should_stop = stop.requested || stop.requested_here;
  torch::Tensor wishes;
  {
    const std::lock_guard lock(mutex_);
    wishes = torch::tensor(
        {should_pause_, should_stop, checkpoint_folder_.has_value()},
        torch::kDouble);
  }
  communicator(learn).all_reduce(wishes);
  const double* const ranks = wishes.const_data_ptr<double>();
  return {
      .pause = ranks[0] > 0,
      .stop = ranks[1] > 0,
      .checkpoint = ranks[2] > 0};
}

// Accumulated gradients of several ranks cannot be saved, so this waits until
// the step is complete.
void RunControl::write_checkpoint(Learner& learn) {
  Communicator& ranks = communicator(learn);
  if (ranks.world_size() > 1 && learn.state().accumulating) return;
  const auto own = take(checkpoint_folder_);
  const auto asked = loop::first_rank_where(parts_of(learn), own.has_value());
  if (!asked) return;
  const std::string common =
      broadcast_text(ranks, own.value_or("").string(), *asked);
  if (own && own->string() != common) {
    // If there are several requests, the remaining ones are handled after the
    // next step.
    request([&] {
      if (!checkpoint_folder_) checkpoint_folder_ = *own;
    });
  }
  or_warn(learn, "no checkpoint was written, and training continues", [&] {
    learn.save_checkpoint(common);
    ++checkpoints_;
  });
}

void RunControl::wait_for_news() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kStopPoll, [this] { return has_news_.load(); });
}

// Requests that have not taken effect yet are part of the training state; they
// take effect after resuming.
StateDict RunControl::state_dict() const {
  StateDict state;
  if (!used_rates_.empty()) {
    state.insert("rates", torch::tensor(used_rates_, torch::kDouble));
    state.insert("own rates", torch::tensor(own_rates_, torch::kDouble));
  }
  const std::lock_guard lock(mutex_);
  if (!rates_ || !learn_) return state;
  std::vector<double> wished;  // empty: release the override
  try {
    if (!rates_->empty())
      wished = rates_->resolve(parts_of(*learn_).groups.size(), 0);
  } catch (const c10::ValueError&) {
    return state;  // the training thread reports it
  }
  state.insert("wished rates", torch::tensor(wished, torch::kDouble));
  state.insert(
      "is_turn_next",
      torch::scalar_tensor(is_turn_next(), torch::kLong));
  return state;
}

// True if a callback before this one is running on_batch_end, so that this
// callback's on_batch_end is still to come.
bool RunControl::is_turn_next() const {
  const LearnerParts& l = parts_of(*learn_);
  if (!l.state.training || l.callbacks.event != Event::batch_end) return false;
  const auto place = [&l](const Callback* callback) {
    return std::ranges::find(l.callbacks.all, callback, &CallbackHandle::get);
  };
  return place(l.callbacks.running) < place(this);
}

void RunControl::load_state_dict(const StateDict& state) {
  used_rates_.clear();
  own_rates_.clear();
  if (state.contains("rates")) {
    used_rates_ = saved_numbers("RunControl", state, "rates");
    own_rates_ = saved_numbers("RunControl", state, "own rates");
  }
  if (!learn_) return;
  // When an epoch is resumed, a callback may repeat a request that took effect
  // before the checkpoint or is stored in it; such a repetition is dropped. A
  // stored request takes effect now if it was due right after the checkpoint;
  // otherwise it takes effect after the next batch or at the start of the next
  // fit.
  take(rates_);
  if (!state.contains("wished rates")) return;
  auto wished = saved_numbers("RunControl", state, "wished rates");
  request([&] {
    rates_ = wished.empty() ? LearningRates()
                            : LearningRates::per_group(std::move(wished));
  });
  const bool is_turn_next =
      saved_value("RunControl", state, "is_turn_next").item<int64_t>() != 0;
  if (is_turn_next) use_rates(*learn_);
}

}  // namespace tern
