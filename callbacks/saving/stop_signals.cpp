#include "tern/callbacks/saving/stop_signals.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>

#include "tern/learner/learner.h"

namespace tern {

namespace {

constexpr std::array<int, 2> kSignals = {SIGTERM, SIGINT};

// A signal handler reaches nothing but globals.
std::atomic<Learner*> g_learner = nullptr;
std::atomic<int> g_count = 0;
std::array<struct sigaction, kSignals.size()> g_before;

static_assert(std::atomic<Learner*>::is_always_lock_free);

void put_back() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &g_before[i], nullptr);
  }
}

// Nothing here but atomics, sigaction and raise, all of which may be called
// from a handler.
void on_signal(int signal) {
  if (g_count.fetch_add(1) == 0) {
    if (Learner* const learner = g_learner) learner->request_stop();
    return;
  }
  put_back();
  ::raise(signal);
}

}  // namespace

StopSignals::StopSignals(Learner& learner) {
  Learner* none = nullptr;
  is_mine_ = g_learner.compare_exchange_strong(none, &learner);
  if (!is_mine_) return;
  g_count = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &action, &g_before[i]);
  }
}

StopSignals::~StopSignals() {
  if (!is_mine_) return;
  if (g_count < 2) put_back();
  g_learner = nullptr;
}

bool StopSignals::came() const {
  return is_mine_ && g_count > 0;
}

void StopOnSignals::on_train_begin(Learner& learn) {
  signals_.emplace(learn);
  if (came_) learn.request_stop();
}

void StopOnSignals::on_train_end(Learner&) {
  came_ = came_ || (signals_ && signals_->came());
  signals_.reset();
}

}  // namespace tern
