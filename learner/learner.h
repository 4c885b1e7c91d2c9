#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/callback.h"
#include "tern/learner/communicator.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner_options.h"
#include "tern/learner/model.h"
#include "tern/learner/predictions.h"
#include "tern/learner/train_state.h"

namespace tern {

class Predictor;            // vision/predict/predictor.h
class Recorder;             // learner/recorder.h
struct LearnerParts;        // learner/learner_parts.h
struct ExportOptions;       // learner/export/export_model.h
struct OnnxOptions;         // learner/export/onnx/export_onnx.h
struct TorchScriptOptions;  // learner/export/torchscript.h
struct PredictorOptions;
struct ResumeOptions;
struct LoadModelOptions;  // learner/checkpoint/save.h
struct LrFind;            // callbacks/schedules/lr_find.h
struct LrFindOptions;
struct ModelSummary;  // learner/report/model_summary.h
struct TrainingPlan;  // callbacks/diagnose/plan.h
struct TrainingPlanOptions;
struct CudaGraphOptions;  // learner/cuda_graph/step_graph.h
struct AmpOptions;        // callbacks/precision/amp.h
struct FineTuneOptions;   // callbacks/schedules/one_cycle.h
struct OneCycleOptions;
struct MixedPrecisionOptions;  // callbacks/precision/mixed_precision.h
struct PrecisionAudit;         // callbacks/diagnose/precision_audit.h
struct PrecisionAuditOptions;
struct DistributedOptions;  // callbacks/distributed.h

/// Owns the model, the data and the optimizer, and trains.
///
///   auto learn = tern::Learner(data, model, {.metrics = {tern::accuracy()}});
///   learn.to_fp16().fit(1);
///
/// Call everything except `request_stop` from one thread. After an exception
/// the Learner stays usable, with the weights of the last complete step.
class Learner {
 public:
  Learner(Learner&& other) noexcept;
  Learner(DataBunch data, Model model, LearnerOptions options = {});
  ~Learner();
  Learner& operator=(Learner&& other) noexcept;

  // ---- Training ----

  /// Trains for `epochs` epochs. The `extra` callbacks are active during this
  /// fit only.
  Learner& fit(int64_t epochs, LearningRates lr = {}, Callbacks extra = {});
  /// Trains with a one-cycle schedule; for its options see
  /// callbacks/schedules/one_cycle.h.
  Learner& fit_one_cycle(
      int64_t epochs,
      std::initializer_list<double> max_lr = {});
  template <std::convertible_to<LearningRates> Rates>
  Learner& fit_one_cycle(int64_t epochs, Rates max_lr) {
    return one_cycle_at(epochs, std::move(max_lr));
  }
  Learner& fit_one_cycle(int64_t epochs, const OneCycleOptions& options);
  Learner& fit_one_cycle(
      int64_t epochs,
      LearningRates max_lr,
      const OneCycleOptions& options);
  /// Trains the last layer group for some epochs, then all groups.
  Learner& fine_tune(int64_t epochs);
  Learner& fine_tune(int64_t epochs, const FineTuneOptions& options);
  /// Tries increasing learning rates and suggests one; see
  /// callbacks/schedules/lr_find.h.
  LrFind lr_find();
  LrFind lr_find(const LrFindOptions& options);
  /// Stops the running fit after the current step, with FitResult::interrupted.
  /// Later fits return at once until `state().result` is set to a different
  /// value. May be called from any thread and from signal handlers.
  void request_stop();

  // ---- Evaluation, predictions, reports ----

  /// Computes the loss and the metrics over a split.
  Validation validate(Split split = Split::valid);
  /// Returns predictions for a split, in order and without augmentation.
  Predictions get_preds(Split split = Split::valid);
  /// Returns predictions for the data of any loader: in order and without
  /// augmentation, even if the loader shuffles or is set up for training. If
  /// the loader was given a sampler, only the samples that it selects are
  /// predicted.
  /// \param with_losses  Also return the loss of each sample; requires a loss
  ///                     with per-sample values.
  Predictions get_preds(const DataLoader& loader, bool with_losses = false);
  /// Test-time augmentation: combines the predictions of augmented passes and a
  /// plain pass; see TtaOptions in learner/predictions.h.
  Predictions tta(Split split = Split::valid, const TtaOptions& options = {});
  /// Predicts one sample: its input tensors as the dataset returns them, or an
  /// image, which is preprocessed first (vision/predict/image_predict.h).
  Prediction predict(at::TensorList inputs);
  Prediction predict(const std::filesystem::path& image_file);
  Prediction predict(const cv::Mat& image);
  /// Lists the model's layers, shapes and operation counts; see
  /// learner/report/model_summary.h.
  ModelSummary summary();
  /// Describes what `fit` will do. Measures a few training steps and undoes
  /// them; see callbacks/diagnose/plan.h.
  TrainingPlan plan();
  TrainingPlan plan(const TrainingPlanOptions& options);
  /// Measures whether the model can be trained in 16 bits; see
  /// callbacks/diagnose/precision_audit.h.
  PrecisionAudit audit_precision();
  PrecisionAudit audit_precision(const PrecisionAuditOptions& options);

  // ---- Precision and devices ----

  /// Switches to a half-precision model with BatchNorm in fp32, fp32 master
  /// weights and a dynamic loss scale.
  Learner& to_fp16();
  Learner& to_fp16(const MixedPrecisionOptions& options);
  /// The same in bfloat16, which needs no loss scale.
  Learner& to_bf16();
  Learner& to_bf16(const MixedPrecisionOptions& options);
  /// Switches to autocast with a loss scale, like `torch.amp`; the weights stay
  /// fp32.
  Learner& to_amp();
  Learner& to_amp(const AmpOptions& options);
  /// Returns to fp32 computation. The weights become exactly the master
  /// weights.
  Learner& to_fp32();
  /// Replays the training step as one CUDA graph; see
  /// learner/cuda_graph/step_graph.h.
  Learner& to_cuda_graph();
  Learner& to_cuda_graph(const CudaGraphOptions& options);
  /// Computes each batch on several devices, by default on all CUDA devices;
  /// see learner/distributed/data_parallel.h.
  Learner& to_parallel();
  Learner& to_parallel(const std::vector<torch::Device>& devices);
  /// Trains together with the other processes that torchrun has started. All of
  /// them must make every call that trains. Does nothing in a single process.
  Learner& to_distributed();
  Learner& to_distributed(const DistributedOptions& options);

  // ---- Saving ----

  /// Returns the weights in fp32 (the master weights of a 16-bit model) and the
  /// buffers, by Python's names. Tensors that are fp32 in the model share
  /// memory with it.
  StateDict state_dict() const;
  LoadReport load_state_dict(
      const StateDict& state,
      const LoadOptions& options = {});
  /// Writes the fp32 weights to `path / model_dir / name.safetensors`, which
  /// Python's safetensors opens, and the optimizer's state to a second file
  /// next to it. In distributed training all ranks call this, and rank 0
  /// writes.
  /// \throws IoError if the files cannot be written; existing files are then
  ///         kept.
  void save(const std::string& name);
  /// Reads the files that `save` wrote, whatever the model's current precision.
  /// If training was stopped before the file was saved, only warns.
  /// \throws DataError, c10::ValueError if the files or their tensors do not
  ///         fit, or if a callback such as SaveModel saves under this name but
  ///         has not saved in this run, so the file comes from a different run.
  ///         The Learner is then unchanged.
  Learner& load(const std::string& name);
  Learner& load(const std::string& name, const LoadModelOptions& options);
  /// Writes a checkpoint to `folder / step_<n>`, with everything needed to
  /// continue exactly. Call it between fits, or from a callback's on_batch_end
  /// or on_epoch_end. In distributed training all ranks call this, and rank 0
  /// writes. Existing checkpoints of this step with different weights, and
  /// checkpoints of later steps of this run, are renamed, not deleted.
  void save_checkpoint(const std::filesystem::path& folder);
  /// Reads the newest intact checkpoint of a run's folder, or the checkpoint of
  /// one step. Set up precision, frozen groups and callbacks first. Then make
  /// the same fits as the original program: completed fits return at once, and
  /// the interrupted fit continues exactly.
  /// \throws CheckpointError if there is no intact checkpoint, or if it belongs
  ///         to different data or settings. The Learner is then unchanged.
  Learner& resume(const std::filesystem::path& folder);
  Learner& resume(
      const std::filesystem::path& folder,
      const ResumeOptions& options);
  /// Writes one file with everything that a Predictor needs; see
  /// learner/export/export_model.h.
  void export_model(const std::filesystem::path& path);
  void export_model(
      const std::filesystem::path& path,
      const ExportOptions& options);
  /// Returns a Predictor with a copy of the current weights. Other threads may
  /// use it while this Learner continues to train, which does not affect the
  /// Predictor. Call this between fits or from a callback; see
  /// vision/predict/predictor.h.
  Predictor predictor();
  Predictor predictor(const PredictorOptions& options);
  /// Writes the model as ONNX, in fp32, whatever the current precision; see
  /// learner/export/onnx/export_onnx.h.
  void export_onnx(
      const std::filesystem::path& path,
      const Tensors& example_inputs);
  void export_onnx(
      const std::filesystem::path& path,
      const Tensors& example_inputs,
      const OnnxOptions& options);
  /// Writes the traced model as TorchScript, in fp32, whatever the current
  /// precision; see learner/export/torchscript.h.
  void export_torchscript(
      const std::filesystem::path& path,
      const Tensors& example_inputs);
  void export_torchscript(
      const std::filesystem::path& path,
      const Tensors& example_inputs,
      const TorchScriptOptions& options);

  // ---- Layer groups and hyperparameters, also while fit runs ----

  /// Divides the parameters, in order of registration, into layer groups: a new
  /// group begins at the first parameter of each named module ("layer3", "fc").
  Learner& split(const std::vector<std::string>& first_modules);
  /// `freeze` freezes all layer groups except the last, `freeze_to` freezes the
  /// groups before `group` (negative: counted from the end), and `unfreeze`
  /// unfreezes all. See also the options `train_bn` and
  /// `freeze_clears_optimizer`.
  ///
  /// Parameters that the program has frozen itself, with
  /// `requires_grad_(false)`, stay frozen unless `LearnerOptions::unfreeze_all`
  /// is set. A program must not freeze a parameter itself while the parameter's
  /// group is frozen, because the Learner could not distinguish it from
  /// parameters that `freeze` has frozen. Unfreeze the group first.
  Learner& freeze();
  Learner& freeze_to(int64_t group);
  Learner& unfreeze();
  void set_learning_rates(const LearningRates& lr);
  /// Returns the current learning rates, one per layer group.
  std::vector<double> learning_rates();
  /// Returns the gradients of the current step by parameter name: fp32,
  /// unscaled, averaged over ranks. Call it from on_backward_end to on_step.
  /// Values written into them are used by the optimizer. For a batch without an
  /// optimizer step the tensors are copies.
  std::vector<NamedGradient> gradients();
  /// Adds a value to the epoch's metrics. Values logged in batches are
  /// averaged; a value logged in on_epoch_end is used directly. See
  /// LoggedValues in learner/recorder.h.
  void log(const std::string& name, double value);
  void log(const std::string& name, const torch::Tensor& value);

  // ---- Callbacks ----

  Learner& add(CallbackHandle callback);
  template <class C>
  Learner& add(typename C::Options options) {
    return add(std::make_shared<C>(std::move(options)));
  }
  template <class C, class... A>
  Learner& add(A&&... arguments) {
    return add(make_callback<C>(std::forward<A>(arguments)...));
  }
  /// Removes a callback. Does nothing if the callback was not added.
  Learner& remove(const Callback& callback);
  const Callbacks& callbacks() const;
  /// Returns the first callback of class C, or null.
  template <class C>
  std::shared_ptr<C> find() const {
    for (const std::shared_ptr<Callback>& callback : callbacks()) {
      if (auto found = std::dynamic_pointer_cast<C>(callback)) return found;
    }
    return nullptr;
  }

  // ---- Parts ----

  TrainState& state();
  Recorder& recorder();
  Model& model();
  DataBunch& data();
  /// Returns the optimizer. The first call of this function or the first fit
  /// creates it.
  torch::optim::Optimizer& optimizer();
  const LearnerOptions& options() const;

 private:
  // For internal use by Tern's other folders; see learner/learner_parts.h.
  friend LearnerParts& parts_of(const Learner& learner);

  Learner& one_cycle_at(int64_t epochs, LearningRates max_lr);
  std::unique_ptr<LearnerParts> parts_;
};

}  // namespace tern
