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
      Sink sink = {});

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
///   learn.add<TensorBoard>("runs/first").fit(10);     // tensorboard --logdir
///                                                     //   runs
///
/// Tags: train/loss, train/smooth_loss, train/lr and train/momentum by batch,
/// train/epoch_loss, valid/loss and valid/METRIC by epoch; with `histograms`
/// each parameter's weights too. The step is the number of batches trained on.
/// Each Learner creates one file; a second fit adds to it, and so does a
/// resumed training, after cutting off what was written after the checkpoint. A
/// TensorBoard that is running shows the old events until it is restarted.
class TensorBoard final : public Logger {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path folder = "runs";
    /// Writes every so many training batches; >= 1.
    int64_t every = 1;
    /// Histograms of the weights at the end of each epoch.
    bool histograms = false;
  };

  /// \throws c10::ValueError if `every` is below 1.
  explicit TensorBoard(Options options)
      : Logger("TensorBoard", options.every, /*least=*/1),
        options_(std::move(options)) {}
  explicit TensorBoard(std::filesystem::path folder = "runs")
      : TensorBoard(Options{.folder = std::move(folder)}) {}

  /// For the program's own events, from the first fit on.
  /// \throws c10::Error before it.
  TensorBoardWriter& writer();

 private:
  std::shared_ptr<LogFile> open(Learner& learn, const StateDict* resumed)
      override;
  void write_batch(const BatchValues& batch) override;
  void write_epoch(Learner& learn, const EpochRecord& epoch) override;

  Options options_;
  std::unique_ptr<TensorBoardWriter> writer_;
};

}  // namespace tern
