#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <torch/types.h>

#include "tern/callbacks/log_file.h"
#include "tern/callbacks/new_losses.h"
#include "tern/learner/callback.h"
#include "tern/learner/recorder.h"

namespace tern {

/// Writes an event file that TensorBoard shows; needs no TensorFlow.
///
///   TensorBoardWriter writer("runs/first");
///   writer.add_scalar("loss", 0.5, /*step=*/1);
///
/// Events are gathered in memory and go into the file when there are 256 KiB of
/// them, at `flush` and at the end. A full disk is told to `sink` once; the
/// events that do not fit are left out.
class TensorBoardWriter {
 public:
  /// Creates a new file in `folder`, which it creates too.
  /// \param sink  Hears of trouble with the disk; empty: the terminal.
  /// \throws IoError if the file cannot be created.
  explicit TensorBoardWriter(
      const std::filesystem::path& folder,
      Sink sink = {});
  ~TensorBoardWriter() { flush(); }
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void add_scalar(const std::string& tag, double value, int64_t step);
  /// Distribution of all elements, which must be floating; NaN is left out.
  /// Reads from the device once.
  void add_histogram(
      const std::string& tag,
      const torch::Tensor& values,
      int64_t step);
  /// \param png  The bytes of a PNG file, as `encode_png` makes them.
  /// \throws c10::ValueError if they are not those of a PNG file.
  void
  add_image(const std::string& tag, std::span<const uint8_t> png, int64_t step);
  /// Shown as Markdown.
  void add_text(const std::string& tag, const std::string& text, int64_t step);

  void flush();
  const std::filesystem::path& file() const { return file_.path(); }

 private:
  friend class TensorBoard;
  explicit TensorBoardWriter(LogFile file);
  // The file that `place` was asked of, cut to what it held then; null if it is
  // not in the folder, or another.
  static std::unique_ptr<TensorBoardWriter> go_on(
      const std::filesystem::path& folder,
      const StateDict& place,
      const Sink& sink);
  // Flushes, and says where the file ends.
  StateDict place();
  void add(const std::string& event);

  LogFile file_;
  std::string pending_;
};

/// Writes losses, rates, validation and metrics for TensorBoard.
///
///   learn.add<TensorBoard>("runs/first").fit(10);     // tensorboard --logdir
///                                                     //   runs
///
/// Tags: train/loss, train/smooth_loss, train/lr and train/momentum by batch,
/// train/epoch_loss, valid/loss and valid/METRIC by epoch; with `histograms`
/// each parameter's weights too. The step is the number of batches trained on.
/// Batches are written when the Recorder has read their losses, so that no step
/// waits for the device. Each Learner makes one file; a second fit adds to it,
/// and so does a resumed training, once what the checkpoint does not know is
/// cut off. A TensorBoard that has shown that already shows it until it is
/// started anew.
class TensorBoard final : public Callback {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path folder = "runs";
    /// Each so many training batches one is written; >= 1.
    int64_t every = 1;
    /// Histograms of the weights at the end of each epoch.
    bool histograms = false;
  };

  /// \throws c10::ValueError if `every` is below 1.
  explicit TensorBoard(Options options);
  explicit TensorBoard(std::filesystem::path folder = "runs")
      : TensorBoard(Options{.folder = std::move(folder)}) {}

  /// For what a program wants to add, from the first fit on.
  /// \throws c10::Error before it.
  TensorBoardWriter& writer();

  /// \throws IoError if the folder cannot be written.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict log_state(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::writes; }
  int order() const override { return callback_order::kLogger; }

 private:
  void write_news(Learner& learn);
  void write_batches(Learner& learn);
  void write_epoch(Learner& learn, const EpochRecord& epoch);

  Options options_;
  std::unique_ptr<TensorBoardWriter> writer_;
  NewLosses losses_;
  NewEpochs epochs_;
};

}  // namespace tern
