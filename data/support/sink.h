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

/// The progress of a training run, for a progress bar.
struct Progress {
  int64_t epoch = 0, epochs = 0;
  int64_t batch = 0, batches = 0;  // `batch` of `batches` done
  bool training = true;            // false: validation
  double smooth_loss = 0;          // NaN before the first batch
  double seconds = 0;              // since the epoch began
  double eta_seconds = 0;          // until this pass over the data ends
  const char* task = nullptr;      // the unit outside training: "MB downloaded"
};

/// "01:05", "1:02:03": seconds as the table, the progress line and reports show
/// them, rounded.
std::string clock_text(double seconds);

/// Receives all output: log messages, warnings and progress. Tern prints
/// nothing else; an application derives from this class to show training in its
/// own window.
///
/// A Learner calls its sink from the thread that trains. The sink of images
/// (`ImageDataBunchOptions::sink`) is called from the loaders' worker threads
/// too, so that one has to be thread-safe. terminal(), silent() and a sink made
/// from a function are.
///
/// One thing does not come through a sink by itself: what LibTorch and the
/// parts of Tern that behave as LibTorch's (kernels, autocast, GradScaler in a
/// hand-written loop) report with TORCH_WARN. A Learner passes these warnings
/// to its sink while it trains or evaluates; elsewhere LibTorch's own
/// `c10::WarningUtils::set_warning_handler` decides, which is the channel that
/// a program with a hand-written loop has already.
class SinkImpl {
 public:
  virtual ~SinkImpl() = default;

  /// A finished line of text, without line break: the rows of the table.
  virtual void line(const std::string& text) = 0;
  /// A message that does not end the training.
  virtual void warning(const std::string& text) { line("warning: " + text); }
  /// Called a few times a second while training.
  virtual void progress(const Progress&) {}
  /// How many characters wide a line may be: the Learner's table is broken into
  /// several lines if it is wider. Unset: any width, as in a file.
  virtual std::optional<int64_t> columns() const { return std::nullopt; }
};

/// A sink as an option or argument: shares a SinkImpl. Empty means `terminal()`
/// wherever Tern takes one.
///
///   Learner quiet(data, model, {.sink = silent()});
///   Learner told(data, model, {.sink = [](const std::string& line) {
///     text += line + "\n";
///   }});
///
/// An object of a class derived from SinkImpl, held by a shared_ptr, is one too.
class Sink {
 public:
  Sink() = default;
  Sink(std::nullptr_t) {}  // NOLINT: implicit on purpose, as all of these

  template <class Derived>
    requires std::is_base_of_v<SinkImpl, Derived>
  Sink(std::shared_ptr<Derived> impl)  // NOLINT
      : impl_(std::move(impl)) {}

  /// Calls `function` with each line, and with each warning as "warning: ...";
  /// leaves progress out. One call at a time, from whichever thread. Must not
  /// write to this sink itself. A null function gives an empty sink.
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

/// Lines on `stream`; where that is a terminal, a live progress line below
/// them, otherwise one line of progress a minute. Warnings go to stderr.
///
/// A terminal has the number of columns that the environment variable COLUMNS
/// gives, else those of its window, else 80. In a file or a pipe lines have any
/// width.
Sink terminal(std::FILE* stream = stdout);

/// Discards all output.
Sink silent();

}  // namespace tern
