#include "tern/data/download/byte_progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tern {

namespace {

using Clock = std::chrono::steady_clock;

class ProgressLine {
 public:
  ProgressLine(Sink sink, const char* task)
      : sink_(std::move(sink)), task_(task) {}

  void operator()(int64_t done, int64_t total) {
    const auto now = Clock::now();
    if (first_ < 0) first_ = done, begin_ = now;
    const bool is_complete = total > 0 && done >= total;
    if (now - last_ < std::chrono::milliseconds(200) && !is_complete) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const auto fetched = static_cast<double>(done - first_);
    const auto left = static_cast<double>(std::max<int64_t>(total - done, 0));
    constexpr int64_t kMegabyte = 1'000'000;
    sink_->progress(
        {.batch = done / kMegabyte,
         .batches = total / kMegabyte,
         .smooth_loss = std::nan(""),
         .seconds = seconds,
         .eta_seconds = fetched > 0 ? seconds / fetched * left : 0,
         .task = task_});
  }

 private:
  Sink sink_;
  const char* task_;
  int64_t first_ = -1;  // bytes from an earlier download
  Clock::time_point begin_, last_;
};

}  // namespace

ByteProgress show_bytes(const Sink& sink, const char* task) {
  return ProgressLine(sink.or_terminal(), task);
}

}  // namespace tern
