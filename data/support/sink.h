#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace tern {

/// Progress of a training run, for a progress bar.
struct Progress {
  int64_t epoch = 0, epochs = 0;
  int64_t batch = 0, batches = 0;  // completed batches; all batches
  bool training = true;            // false: validation
  double smooth_loss = 0;          // NaN before the first batch
  double seconds = 0;              // since the epoch began
  double eta_seconds = 0;          // until this pass over the data ends
  const char* task = nullptr;      // the unit outside training: "MB downloaded"
};

/// Formats rounded seconds, as shown in the table, the progress line and
/// reports: "01:05" or "1:02:03".
std::string clock_text(double seconds);

/// Receives all output: log messages, warnings and progress. Tern prints
/// nothing elsewhere. To show training in its own window, an application
/// derives from this class.
///
/// A Learner calls its sink from the training thread. The sink of an image
/// dataset (`ImageDataBunchOptions::sink`) is also called from the loaders'
/// worker threads and must therefore be thread-safe. terminal(), silent() and a
/// sink created from a function are thread-safe.
///
/// There is one exception: warnings that LibTorch, and the parts of Tern that
/// act like LibTorch (kernels, autocast, GradScaler in a hand-written loop),
/// report with TORCH_WARN. A Learner forwards these warnings to its sink while
/// it trains or evaluates. Elsewhere they go to LibTorch's own
/// `c10::WarningUtils::set_warning_handler`, which a program with a
/// hand-written loop already uses.
class SinkImpl {
 public:
  virtual ~SinkImpl() = default;

  /// A complete line of text without a line break, such as a row of the table.
  virtual void line(const std::string& text) = 0;
  /// A message that does not end training.
  virtual void warning(const std::string& text) { line("warning: " + text); }
  /// Called a few times per second during training.
  virtual void progress(const Progress&) {}
  /// Maximum width of a line in characters; the Learner's table is split into
  /// several lines if it is wider. Unset: no limit, as in a file.
  virtual std::optional<int64_t> columns() const { return std::nullopt; }
};

/// A sink as an option or argument; copies share a SinkImpl. Wherever Tern
/// accepts a sink, an empty one means `terminal()`.
///
///   Learner quiet(data, model, {.sink = silent()});
///   Learner told(data, model, {.sink = [](const std::string& line) {
///     text += line + "\n";
///   }});
///
/// Also accepts an object of a class derived from SinkImpl in a shared_ptr.
class Sink {
 public:
  Sink() = default;
  Sink(std::nullptr_t) {}  // NOLINT: implicit on purpose, like those below

  template <class Derived>
    requires std::is_base_of_v<SinkImpl, Derived>
  Sink(std::shared_ptr<Derived> impl)  // NOLINT
      : impl_(std::move(impl)) {}

  /// Calls `function` with each line and with each warning as "warning: ...";
  /// ignores progress. Calls are serialized but may come from any thread. The
  /// function must not write to this sink itself. A null function creates an
  /// empty sink.
  template <class Function>
    requires std::is_constructible_v<
        std::function<void(const std::string&)>,
        Function>
  Sink(Function function)  // NOLINT
      : Sink(from_function(std::move(function))) {}

  explicit operator bool() const { return impl_ != nullptr; }
  SinkImpl* operator->() const { return impl_.get(); }
  SinkImpl& operator*() const { return *impl_; }
  SinkImpl* get() const { return impl_.get(); }
  void reset() { impl_.reset(); }
  friend bool operator==(const Sink&, const Sink&) = default;

  /// Returns this sink, or `terminal()` if it is empty.
  Sink or_terminal() const;

 private:
  static Sink from_function(std::function<void(const std::string&)> function);

  std::shared_ptr<SinkImpl> impl_;
};

/// Returns a sink that writes lines to `stream`. On a terminal it shows a live
/// progress line below them; otherwise it writes one line of progress per
/// minute. Warnings go to stderr.
///
/// The width of a terminal is read from the environment variable COLUMNS, or
/// else from its window; if both are unknown, it is 80. The width of lines in a
/// file or a pipe is not limited.
Sink terminal(std::FILE* stream = stdout);

/// Returns a sink that discards all output.
Sink silent();

}  // namespace tern
