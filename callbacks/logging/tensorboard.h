#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <torch/types.h>

#include "tern/callbacks/logging/loggers.h"

namespace tern {

/// Writes an event file for TensorBoard; needs no TensorFlow.
///
///   TensorBoardWriter writer("runs/first");
///   writer.add_scalar("loss", 0.5, /*step=*/1);
///
/// Events are buffered and written once a second, in blocks of up to 256 KiB,
/// at `flush` and at the end. When the disk is full the sink gets one warning,
/// and the events that do not fit are left out.
class TensorBoardWriter {
 public:
  /// Creates a new file in `folder`, and the folder.
  /// \param sink  Receives warnings; empty: the terminal.
  /// \throws IoError if the file cannot be created.
  explicit TensorBoardWriter(
      const std::filesystem::path& folder,
      const Sink& sink = {});

  void add_scalar(const std::string& tag, double value, int64_t step);
  /// The distribution of all finite elements of a floating tensor. Reads from
  /// the device once.
  void add_histogram(
      const std::string& tag,
      const torch::Tensor& values,
      int64_t step);
  /// \param png  The bytes of a PNG file, as `encode_png` returns them.
  /// \throws c10::ValueError if they are not.
  void
  add_image(const std::string& tag, std::span<const uint8_t> png, int64_t step);
  /// Shown as Markdown.
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

/// Writes losses, learning rates, validation and metrics for TensorBoard.
///
///   learn.add<TensorBoard>("runs/first").fit(10);
///   // then: tensorboard --logdir runs
///
/// Tags, by the names of JsonLinesLogger and CSVLogger: batch/loss,
/// batch/smooth_loss, batch/lr, batch/momentum and batch/NAME of what callbacks
/// log in training batches; epoch/train_loss, epoch/valid_loss, epoch/seconds
/// and epoch/NAME of metrics and logged values; weights/NAME and gradients/NAME
/// of parameters, as histograms, on request. The step is the number of batches
/// trained on. Each Learner creates one file; a second fit adds to it, and so
/// does a resumed training, after cutting off what was written after the
/// checkpoint. A TensorBoard that is running shows the old events until it is
/// restarted.
class TensorBoard final : public Logger {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path folder = "runs";
    /// Writes every so many training batches; >= 1.
    int64_t every = 1;
    /// Histograms of the weights.
    bool histograms = false;
    /// Histograms of the gradients that steps are made with, unscaled.
    bool gradient_histograms = false;
    /// Training batches from one histogram to the next; 0: one an epoch, of the
    /// weights at its end and of its last batch's gradients.
    int64_t histogram_every = 0;
  };

  /// \throws c10::ValueError if `every` is below 1 or `histogram_every` below
  ///         0.
  explicit TensorBoard(Options options);
  explicit TensorBoard(std::filesystem::path folder = "runs")
      : TensorBoard(Options{.folder = std::move(folder)}) {}

  /// For the program's own events, from the first fit on.
  /// \throws c10::Error before it.
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
