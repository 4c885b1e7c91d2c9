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

/// Owns model, data and optimizer, and trains.
///
///   auto learn = tern::Learner(data, model, {.metrics = {tern::accuracy()}});
///   learn.to_fp16().fit(1);
///
/// All calls but `request_stop` come from one thread. After an exception the
/// Learner is usable; its weights are those of the last complete step.
class Learner {
 public:
  Learner(Learner&& other) noexcept;
  Learner(DataBunch data, Model model, LearnerOptions options = {});
  ~Learner();
  Learner& operator=(Learner&& other) noexcept;

  // ---- Training ----

  /// Trains for `epochs` epochs; `extra` callbacks take part in it alone.
  Learner& fit(int64_t epochs, LearningRates lr = {}, Callbacks extra = {});
  /// Trains with a schedule; callbacks/schedules/one_cycle.h has the options.
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
  /// Trains the last layer group for some epochs, then all.
  Learner& fine_tune(int64_t epochs);
  Learner& fine_tune(int64_t epochs, const FineTuneOptions& options);
  /// Tries learning rates and suggests one; callbacks/schedules/lr_find.h.
  LrFind lr_find();
  LrFind lr_find(const LrFindOptions& options);
  /// Ends fit, as FitResult::interrupted, after this step, and later ones until
  /// `state().result` is set to another; from any thread and signal handlers.
  void request_stop();

  // ---- Evaluation, predictions, reports ----

  /// Loss and metrics over a split.
  Validation validate(Split split = Split::valid);
  /// Predictions for a split, in order, not augmented.
  Predictions get_preds(Split split = Split::valid);
  /// For any data, in order and not augmented even if the loader shuffles or
  /// trains; of the samples that its sampler names, if it was given one.
  /// `with_losses` needs a loss with a value for each sample.
  Predictions get_preds(const DataLoader& loader, bool with_losses = false);
  /// The mean of augmented passes and a plain one; learner/predictions.h.
  Predictions tta(Split split = Split::valid, const TtaOptions& options = {});
  /// Predicts one sample as the dataset gives it, Tensors where there are
  /// several inputs; or an image, prepared: vision/predict/image_predict.h.
  Prediction predict(at::TensorList inputs);
  Prediction predict(const std::filesystem::path& image_file);
  Prediction predict(const cv::Mat& image);
  /// The model's layers, shapes, operations; learner/report/model_summary.h.
  ModelSummary summary();
  /// What `fit` will do, measured on steps that are undone; callbacks/diagnose/plan.h.
  TrainingPlan plan();
  TrainingPlan plan(const TrainingPlanOptions& options);
  /// Whether it trains in 16 bits; callbacks/diagnose/precision_audit.h.
  PrecisionAudit audit_precision();
  PrecisionAudit audit_precision(const PrecisionAuditOptions& options);

  // ---- Precision and devices ----

  /// Half model, BatchNorm in fp32, fp32 master weights, dynamic loss scale.
  Learner& to_fp16();
  Learner& to_fp16(const MixedPrecisionOptions& options);
  /// The same in bfloat16, which needs no loss scale.
  Learner& to_bf16();
  Learner& to_bf16(const MixedPrecisionOptions& options);
  /// Autocast and a loss scale; the weights stay fp32. As `torch.amp`.
  Learner& to_amp();
  Learner& to_amp(const AmpOptions& options);
  /// Back to fp32 computation and weights, exactly the master weights.
  Learner& to_fp32();
  /// Replays the training step as one CUDA graph; learner/cuda_graph/step_graph.h.
  Learner& to_cuda_graph();
  Learner& to_cuda_graph(const CudaGraphOptions& options);
  /// Computes each batch on several, or all CUDA, devices; data_parallel.h.
  Learner& to_parallel();
  Learner& to_parallel(const std::vector<torch::Device>& devices);
  /// Trains together with the processes that torchrun has started, which all
  /// make every call that trains; in a single process it changes nothing.
  Learner& to_distributed();
  Learner& to_distributed(const DistributedOptions& options);

  // ---- Saving ----

  /// The weights in fp32 (of a 16-bit model the master weights) and the
  /// buffers, by Python's names. What is fp32 already shares memory.
  StateDict state_dict() const;
  LoadReport load_state_dict(
      const StateDict& state,
      const LoadOptions& options = {});
  /// Writes `path / model_dir / name.safetensors`, fp32 weights that Python's
  /// safetensors opens, and beside it the optimizer's state. Of several ranks
  /// all call it, and rank 0 writes.
  /// \throws IoError if they cannot be written; older ones are kept then.
  void save(const std::string& name);
  /// Reads what `save` wrote, in whatever precision the model is in now. After a
  /// stop that came before the file was saved it only warns.
  /// \throws DataError, c10::ValueError if the files or their tensors do not
  ///         fit, or a fit with that SaveModel has saved none and the file is of
  ///         another training; the Learner then is as it was.
  Learner& load(const std::string& name);
  Learner& load(const std::string& name, const LoadModelOptions& options);
  /// Writes all that an exact continuation needs to `folder / step_<n>`;
  /// between fits, or from a callback's on_batch_end or on_epoch_end. Of several
  /// ranks all call it, and rank 0 writes. What was there of this step, or of
  /// later ones of the run, is put aside.
  void save_checkpoint(const std::filesystem::path& folder);
  /// Reads the newest whole checkpoint of a run's folder, or one step's, once
  /// precision, frozen groups and callbacks are set up. The program then makes
  /// the same fits: complete ones return at once, the cut one goes on exactly.
  /// \throws CheckpointError if there is none that is whole, or it is of other
  ///         data or settings; the Learner then is as it was.
  Learner& resume(const std::filesystem::path& folder);
  Learner& resume(
      const std::filesystem::path& folder,
      const ResumeOptions& options);
  /// One file with all that a Predictor needs; learner/export/export_model.h.
  void export_model(const std::filesystem::path& path);
  void export_model(
      const std::filesystem::path& path,
      const ExportOptions& options);
  /// A Predictor of the weights as they are now, in memory of its own: other
  /// threads may ask it while this Learner trains on, which it does not change.
  /// Between fits or from a callback; vision/predict/predictor.h.
  Predictor predictor();
  Predictor predictor(const PredictorOptions& options);
  /// Writes the model as ONNX, in fp32 whatever the precision is now;
  /// learner/export/onnx/export_onnx.h.
  void export_onnx(
      const std::filesystem::path& path,
      const Tensors& example_inputs);
  void export_onnx(
      const std::filesystem::path& path,
      const Tensors& example_inputs,
      const OnnxOptions& options);
  /// Writes the traced model as TorchScript, in fp32 whatever the precision is
  /// now; learner/export/torchscript.h.
  void export_torchscript(
      const std::filesystem::path& path,
      const Tensors& example_inputs);
  void export_torchscript(
      const std::filesystem::path& path,
      const Tensors& example_inputs,
      const TorchScriptOptions& options);

  // ---- Layer groups and hyper-parameters, also while fit runs ----

  /// Cuts the parameters, in order of registration, into layer groups: a new
  /// group begins at the first parameter of each named module ("layer3", "fc").
  Learner& split(const std::vector<std::string>& first_modules);
  /// Freezes all groups but the last, those before `group` (negative: from the
  /// end), or none; `train_bn` and `freeze_clears_optimizer` are options. What
  /// the program had frozen itself, with `requires_grad_(false)`, stays frozen:
  /// see `LearnerOptions::unfreeze_all`. A parameter of a group that is frozen
  /// already cannot be told from the others; unfreeze the group before.
  Learner& freeze();
  Learner& freeze_to(int64_t group);
  Learner& unfreeze();
  void set_learning_rates(const LearningRates& lr);
  /// The learning rates now, one for each layer group.
  std::vector<double> learning_rates();
  /// The gradients of the step that is being made, by the parameters' names:
  /// fp32, unscaled, averaged over ranks, from on_backward_end to on_step. The
  /// optimizer steps with what is written into them; copies without a step.
  std::vector<NamedGradient> gradients();
  /// Adds a number of a callback to the epoch's metrics: the mean over batches,
  /// or that of on_epoch_end; learner/recorder.h.
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
  /// Removes a callback; nothing happens if it is not there.
  Learner& remove(const Callback& callback);
  const Callbacks& callbacks() const;
  /// The first callback of class C, or null.
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
  /// Created at the first call or fit, and kept.
  torch::optim::Optimizer& optimizer();
  const LearnerOptions& options() const;

 private:
  // For Tern's own folders; learner/learner_parts.h.
  friend LearnerParts& parts_of(const Learner& learner);

  Learner& one_cycle_at(int64_t epochs, LearningRates max_lr);
  std::unique_ptr<LearnerParts> parts_;
};

}  // namespace tern
