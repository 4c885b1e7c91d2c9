#include "tern/data/support/sink.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
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

// Returns the width of the stream's terminal; unset if it is not a terminal.
std::optional<int64_t> columns_of(std::FILE* stream) {
  if (!isatty(fileno(stream))) return std::nullopt;
  if (const char* const text = std::getenv("COLUMNS")) {
    // An invalid number is ignored, as in other programs.
    int64_t given = 0;
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, given);
    if (error == std::errc() && stop == end && given > 0) return given;
  }
  winsize size{};
  const bool is_known = ::ioctl(fileno(stream), TIOCGWINSZ, &size) == 0;
  return is_known && size.ws_col > 0 ? size.ws_col : 80;
}

// Returns at most `columns` characters, since a longer line would wrap and
// could not be redrawn. The bar uses the remaining space.
std::string
describe(const Progress& progress, int64_t columns, int64_t max_bar) {
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
  constexpr int64_t kLeastBar = 4, kBrackets = 3;
  const int64_t width = std::min(
      max_bar,
      columns - std::ssize(task) - std::ssize(rest) - kBrackets);
  std::string bar;
  if (width >= kLeastBar) {
    const int64_t filled = width * progress.batch / batches;
    bar = fmt::format(" [{:=<{}}{:<{}}]", "", filled, "", width - filled);
  }
  return (task + bar + rest).substr(0, static_cast<size_t>(columns));
}

/// If the output is closed (a pipe without a reader) or the disk is full, the
/// text is lost but training continues. fmt::print would throw.
void put(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

class TerminalSink final : public SinkImpl {
 public:
  explicit TerminalSink(std::FILE* stream) : stream_(stream) {}

  ~TerminalSink() override { clear(); }

  void line(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    clear();
    put(stream_, text + "\n");
    std::fflush(stream_);
  }

  void warning(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    clear();
    put(stderr, fmt::format("warning: {}\n", text));
  }

  void progress(const Progress& progress) override {
    const std::lock_guard lock(mutex_);
    if (is_live()) {
      const int64_t columns = columns_of(stream_).value_or(80);
      put(stream_,
          "\r\033[K" +
              describe(progress, std::max<int64_t>(columns - 1, 0), 24));
      has_live_line_ = true;
    } else {
      const auto now = std::chrono::steady_clock::now();
      if (now - last_line_ < std::chrono::minutes(1)) return;
      last_line_ = now;
      put(stream_, describe(progress, 80, 10) + "\n");
    }
    std::fflush(stream_);
  }

  std::optional<int64_t> columns() const override {
    return columns_of(stream_);
  }

 private:
  // True if the stream can redraw a line.
  bool is_live() const {
    const char* const term = std::getenv("TERM");
    return isatty(fileno(stream_)) && term && std::string(term) != "dumb";
  }

  void clear() {
    if (!has_live_line_) return;
    put(stream_, "\r\033[K");
    std::fflush(stream_);  // before a warning on stderr
    has_live_line_ = false;
  }

  std::FILE* stream_;
  bool has_live_line_ = false;
  std::chrono::steady_clock::time_point last_line_ =
      std::chrono::steady_clock::now();
  std::mutex mutex_;
};

class FunctionSink final : public SinkImpl {
 public:
  explicit FunctionSink(std::function<void(const std::string&)> function)
      : function_(std::move(function)) {}

  void line(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    function_(text);
  }

 private:
  std::function<void(const std::string&)> function_;
  std::mutex mutex_;
};

}  // namespace

Sink Sink::from_function(std::function<void(const std::string&)> function) {
  if (!function) return {};
  return std::make_shared<FunctionSink>(std::move(function));
}

Sink Sink::or_terminal() const {
  return impl_ ? *this : terminal();
}

Sink terminal(std::FILE* stream) {
  if (stream != stdout) return std::make_shared<TerminalSink>(stream);
  // One sink for all of stdout, so that a message from a dataset clears the
  // Learner's progress line, which is then redrawn below it. When the last
  // owner is destroyed, the line is cleared, so that a program's error message
  // is not appended to it. This object is never destroyed, so that threads may
  // still write while the program ends.
  struct Shared {
    std::mutex mutex;
    std::weak_ptr<TerminalSink> sink;
  };
  static Shared& shared = *new Shared;
  const std::lock_guard lock(shared.mutex);
  std::shared_ptr<TerminalSink> sink = shared.sink.lock();
  if (!sink) shared.sink = sink = std::make_shared<TerminalSink>(stream);
  return sink;
}

Sink silent() {
  struct SilentSink final : SinkImpl {
    void line(const std::string&) override {}
  };
  return std::make_shared<SilentSink>();
}

}  // namespace tern
