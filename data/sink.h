#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace tern {

/// How far a training is; what a progress bar needs.
struct Progress {
  int64_t epoch = 0, epochs = 0;
  int64_t batch = 0, batches = 0;  // `batch` of `batches` are done
  bool training = true;            // false: validation
  double smooth_loss = 0;          // NaN before the first batch
  double seconds = 0;              // since the epoch began
  double eta_seconds = 0;          // until this pass over the data ends
  const char* task = nullptr;      // what is done when it is no training
};

/// "01:05", "1:02:03": seconds as the table, the progress line and reports show
/// them, rounded.
std::string clock_text(double seconds);

/// Where Tern's words go. Tern prints nothing except through its sink; an
/// application derives from this class to show training in its own window.
class SinkImpl {
 public:
  virtual ~SinkImpl() = default;

  /// A finished line of text, without line break: the rows of the table.
  virtual void line(const std::string& text) = 0;
  /// Something the user should know though training goes on.
  virtual void warning(const std::string& text) { line("warning: " + text); }
  /// Called a few times a second while training.
  virtual void progress(const Progress&) {}
};

/// Shares a SinkImpl. Empty means `terminal()`.
using Sink = std::shared_ptr<SinkImpl>;

/// Lines on `stream`; where that is a terminal, a live progress line below
/// them, otherwise one line of progress a minute. Warnings go to stderr.
Sink terminal(std::FILE* stream = stdout);

/// Says nothing.
Sink silent();

}  // namespace tern
