#include "tern/data/support/sink.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace tern {

std::string clock_text(double seconds) {
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format(
                             "{}:{:02}:{:02}",
                             whole / 3600,
                             whole / 60 % 60,
                             whole % 60)
                       : fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

namespace {

// The most columns that the stream's terminal shows; `other` where it is none.
int columns_of(std::FILE* stream, int other) {
  winsize size{};
  const bool is_known = ::ioctl(fileno(stream), TIOCGWINSZ, &size) == 0;
  return is_known && size.ws_col > 0 ? size.ws_col : other;
}

// At most `columns` long, for a longer line would wrap and could not be
// redrawn: the bar gets what the words leave.
std::string describe(const Progress& progress, int columns, int max_bar) {
  const int64_t batches = std::max<int64_t>(progress.batches, 1);
  std::string loss;
  if (std::isfinite(progress.smooth_loss)) {
    loss = fmt::format("  loss {:.4f}", progress.smooth_loss);
  }
  const std::string task = progress.task
                               ? progress.task
                               : fmt::format(
                                     "epoch {}/{} {}",
                                     progress.epoch + 1,
                                     progress.epochs,
                                     progress.training ? "train" : "valid");
  const std::string rest = fmt::format(
      " {}/{}{}  {} left",
      progress.batch,
      progress.batches,
      loss,
      clock_text(progress.eta_seconds));
  constexpr int kLeastBar = 4, kBrackets = 3;
  const int width = std::min(
      max_bar,
      columns - static_cast<int>(task.size() + rest.size()) - kBrackets);
  std::string bar;
  if (width >= kLeastBar) {
    const auto filled = static_cast<int>(width * progress.batch / batches);
    bar = fmt::format(" [{:=<{}}{:<{}}]", "", filled, "", width - filled);
  }
  return (task + bar + rest).substr(0, static_cast<size_t>(columns));
}

// Output may be closed under us (a pipe whose reader has gone): then the words
// are lost, training is not.
class TerminalSink final : public SinkImpl {
 public:
  explicit TerminalSink(std::FILE* stream) : stream_(stream) {
    const char* term = std::getenv("TERM");
    is_live_ = isatty(fileno(stream)) && term && std::string(term) != "dumb";
  }

  ~TerminalSink() override { clear(); }

  void line(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    clear();
    fmt::print(stream_, "{}\n", text);
    std::fflush(stream_);
  }

  void warning(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    clear();
    fmt::print(stderr, "warning: {}\n", text);
  }

  void progress(const Progress& progress) override {
    const std::lock_guard lock(mutex_);
    if (is_live_) {
      fmt::print(
          stream_,
          "\r\033[K{}",
          describe(progress, columns_of(stream_, 80) - 1, 24));
      has_live_line_ = true;
    } else {
      const auto now = std::chrono::steady_clock::now();
      if (now - last_line_ < std::chrono::minutes(1)) return;
      last_line_ = now;
      fmt::print(stream_, "{}\n", describe(progress, 80, 10));
    }
    std::fflush(stream_);
  }

 private:
  void clear() {
    if (has_live_line_) fmt::print(stream_, "\r\033[K");
    has_live_line_ = false;
  }

  std::FILE* stream_;
  bool is_live_ = false;
  bool has_live_line_ = false;
  std::chrono::steady_clock::time_point last_line_ =
      std::chrono::steady_clock::now();
  std::mutex mutex_;
};

}  // namespace

Sink terminal(std::FILE* stream) {
  return std::make_shared<TerminalSink>(stream);
}

Sink silent() {
  struct SilentSink final : SinkImpl {
    void line(const std::string&) override {}
  };
  return std::make_shared<SilentSink>();
}

}  // namespace tern
