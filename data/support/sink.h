#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace tern {

/// The progress of a training run, for a progress bar.
struct Progress {
  int64_t epoch = 0, epochs = 0;
  int64_t batch = 0, batches = 0;  // `batch` of `batches` done
  bool training = true;            // false: validation
  double smooth_loss = 0;          // NaN before the first batch
  double seconds = 0;              // since the epoch began
  double eta_seconds = 0;          // until this pass over the data ends
  const char* task = nullptr;      // the unit outside training: "MB of weights"
};

/// "01:05", "1:02:03": seconds as the table, the progress line and reports show
/// them, rounded.
std::string clock_text(double seconds);

/// Receives all output: log messages, warnings and progress. Tern prints
/// nothing else; an application derives from this class to show training in its
/// own window.
class SinkImpl {
 public:
  virtual ~SinkImpl() = default;

  /// A finished line of text, without line break: the rows of the table.
  virtual void line(const std::string& text) = 0;
  /// A message that does not end the training.
  virtual void warning(const std::string& text) { line("warning: " + text); }
  /// Called a few times a second while training.
  virtual void progress(const Progress&) {}
};

/// Shares a SinkImpl. Empty means `terminal()`.
using Sink = std::shared_ptr<SinkImpl>;

/// Lines on `stream`; where that is a terminal, a live progress line below
/// them, otherwise one line of progress a minute. Warnings go to stderr.
Sink terminal(std::FILE* stream = stdout);

/// Discards all output.
Sink silent();

}  // namespace tern
