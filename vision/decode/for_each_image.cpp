#include "tern/vision/decode/for_each_image.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace tern {
namespace {

using Clock = std::chrono::steady_clock;

/// Draws the progress line a few times a second.
class ProgressLine {
 public:
  ProgressLine(const Sink& sink, const char* task, int64_t count)
      : sink_(sink), task_(task), count_(count) {}

  void add_one() {
    const int64_t done = ++done_;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    const auto now = Clock::now();
    const bool is_due = now - last_ >= std::chrono::milliseconds(200);
    if (!sink_ || !lock || (!is_due && done != count_)) {
      return;
    }
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const auto left = static_cast<double>(count_ - done);
    sink_->progress(
        {.batch = done,
         .batches = count_,
         .smooth_loss = std::numeric_limits<double>::quiet_NaN(),
         .seconds = seconds,
         .eta_seconds = seconds / static_cast<double>(done) * left,
         .task = task_});
  }

 private:
  const Sink& sink_;
  const char* task_;
  int64_t count_;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
  std::atomic<int64_t> done_ = 0;
  std::mutex mutex_;
};

}  // namespace

void for_each_image(
    int64_t count,
    const std::function<void(int64_t index)>& action,
    const char* task,
    const Sink& sink,
    int64_t workers) {
  const int64_t cores =
      std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t threads = std::min(workers > 0 ? workers : cores, count);
  ProgressLine line(sink, task, count);
  std::atomic<int64_t> next = 0;
  std::atomic<bool> stop = false;
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    for (int64_t index = next++; index < count && !stop; index = next++) {
      try {
        action(index);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) {
          error = std::current_exception();
        }
        stop = true;
      }
      line.add_one();
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int64_t i = 1; i < threads; ++i) {
      pool.emplace_back(work);
    }
    work();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace tern
