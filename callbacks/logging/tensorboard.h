#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <torch/types.h>

#include "tern/callbacks/logging/loggers.h"

namespace tern {

/// Writes an event file for TensorBoard, without TensorFlow.
///
///   TensorBoardWriter writer("runs/first");
///   writer.add_scalar("loss", 0.5, /*step=*/1);
///
/// Events are buffered. The buffer is written when it reaches 256 KiB, when an
/// event is added a second or more after the last write, by `flush`, and by the
/// destructor. If the disk is full, the sink gets one warning and the events
/// that do not fit are dropped.
class TensorBoardWriter {
 public:
  /// Creates `folder` and a new file in it.
  /// \param sink  Receives warnings; empty: the terminal.
  /// \throws IoError if the file cannot be created.
  explicit TensorBoardWriter(
      const std::filesystem::path& folder,
      const Sink& sink = {});

  void add_scalar(const std::string& tag, double value, int64_t step);
  /// Adds a histogram of all finite elements of a floating-point tensor.
  /// Synchronizes with the device once.
  void add_histogram(
      const std::string& tag,
      const torch::Tensor& values,
      int64_t step);
  /// \param png  The bytes of a PNG file, as returned by `encode_png`.
  /// \throws c10::ValueError if they are not a PNG file.
  void
  add_image(const std::string& tag, std::span<const uint8_t> png, int64_t step);
  /// Adds text, rendered as Markdown.
  void add_text(const std::string& tag, const std::string& text, int64_t step);

  void flush() { file_->flush(); }
  const std::filesystem::path& file() const { return file_->path(); }

 private:
  friend class TensorBoard;
  explicit TensorBoardWriter(std::shared_ptr<LogFile> file);
  // `value` is a Summary.Value without its tag.
  void add(const std::string& tag, std::string_view value, int64_t step);
  void add_record(std::string_view event);

  std::shared_ptr<LogFile> file_;
};

/// Logs losses, learning rates, validation results and metrics to TensorBoard.
///
///   learn.add<TensorBoard>("runs/first").fit(10);
///   // then: tensorboard --logdir runs
///
/// Tags use the names of JsonLinesLogger and CSVLogger: batch/loss,
/// batch/smooth_loss, batch/lr and batch/momentum; logged/NAME for values that
/// callbacks log in training batches; epoch/train_loss, epoch/valid_loss,
/// epoch/seconds, and epoch/NAME for metrics and logged values; on request,
/// weights/NAME and gradients/NAME for histograms of parameters. The step is
/// the number of completed training batches. Each Learner creates one file. A
/// second fit appends to it. A resumed run first removes the events after its
/// checkpoint, and then appends. A running TensorBoard shows the old events
/// until it is restarted.
class TensorBoard final : public Logger {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path folder = "runs";
    /// Interval between logged training batches; >= 1.
    int64_t every = 1;
    /// Histograms of the weights.
    bool histograms = false;
    /// Histograms of the unscaled gradients that the optimizer uses.
    bool gradient_histograms = false;
    /// Interval between histograms, in training batches. 0: one per epoch, of
    /// the weights at its end and the gradients of its last batch.
    int64_t histogram_every = 0;
  };

  /// \throws c10::ValueError if `every` is below 1 or `histogram_every` below
  ///         0.
  explicit TensorBoard(Options options);
  explicit TensorBoard(std::filesystem::path folder = "runs")
      : TensorBoard(Options{.folder = std::move(folder)}) {}

  /// Returns the writer, for custom events, once the first fit has begun.
  /// \throws c10::Error before the first fit.
  TensorBoardWriter& writer();

  void on_batch_begin(Learner& learn) override;
  void on_step(Learner& learn) override;
  bool acts_at(Event event) const override {
    return event != Event::step || options_.gradient_histograms;
  }
  OptionValues option_values() const override;

 private:
  std::shared_ptr<LogFile> open(Learner& learn, const StateDict* resumed)
      override;
  void write_batch(const BatchValues& batch) override;
  void write_epoch(Learner& learn, const EpochRecord& epoch) override;

  bool is_histogram_due(const TrainState& state) const;
  void add_weights(Learner& learn);

  Options options_;
  std::unique_ptr<TensorBoardWriter> writer_;
};

}  // namespace tern
