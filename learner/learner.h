#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner_options.h"
#include "tern/learner/learning_rates.h"
#include "tern/learner/model.h"
#include "tern/learner/predictions.h"
#include "tern/learner/train_state.h"

namespace tern {

class Communicator;    // learner/communicator.h
class Recorder;        // learner/recorder.h
struct LearnerParts;   // learner/learner_parts.h
struct ExportOptions;  // learner/weights/export_model.h
struct ResumeOptions;
struct LoadModelOptions;  // learner/checkpoint/save.h
struct LrFind;            // callbacks/schedules/lr_find.h
struct LrFindOptions;
struct ModelSummary;  // learner/report/model_summary.h
struct TrainingPlan;  // callbacks/plan.h
struct TrainingPlanOptions;
struct MaxBatchSizeOptions;  // callbacks/max_batch_size.h
struct ReportOptions;        // learner/report/report.h
struct CudaGraphOptions;     // learner/graph/step_graph.h
struct AmpOptions;           // callbacks/precision/amp.h
struct FineTuneOptions;      // callbacks/schedules/one_cycle.h
struct FlatCosOptions;
struct OneCycleOptions;
struct SgdrOptions;
struct MixedPrecisionOptions;  // callbacks/precision/mixed_precision.h
struct DistributedOptions;     // callbacks/distributed.h

/// Owns model, data and optimizer, and trains.
///
///   auto learn = tern::Learner(data, model, {.metrics = {tern::accuracy()}});
///   learn.to_fp16().fit(1);
///
/// All calls but `request_stop` come from one thread. When a call throws, the
/// Learner stays usable: weights are those of the last complete step.
class Learner {
 public:
  Learner(DataBunch data, Model model, LearnerOptions options = {});
  ~Learner();
  Learner(Learner&& other) noexcept;
  Learner& operator=(Learner&& other) noexcept;

  // ---- Training ----

  /// Trains for `epochs` epochs. The optimizer is created at the first fit and
  /// kept. `extra` callbacks take part in this fit alone.
  Learner& fit(int64_t epochs, LearningRates lr = {}, Callbacks extra = {});
  /// Trains with a schedule; callbacks/schedules/one_cycle.h has the options.
  Learner& fit_one_cycle(int64_t epochs, LearningRates max_lr = {});
  Learner& fit_one_cycle(int64_t epochs, const OneCycleOptions& options);
  Learner& fit_one_cycle(int64_t, LearningRates, const OneCycleOptions&);
  /// Trains the last layer group for some epochs, then all.
  Learner& fine_tune(int64_t epochs);
  Learner& fine_tune(int64_t epochs, const FineTuneOptions& options);
  /// A flat learning rate, then half a cosine down.
  Learner& fit_flat_cos(int64_t epochs, LearningRates lr = {});
  Learner& fit_flat_cos(int64_t epochs, const FlatCosOptions& options);
  Learner& fit_flat_cos(int64_t, LearningRates, const FlatCosOptions&);
  /// Cosines down to 0 with warm restarts; the first takes `cycle_epochs`.
  Learner& fit_sgdr(int64_t cycles, int64_t cycle_epochs, LearningRates = {});
  Learner& fit_sgdr(int64_t, int64_t cycle_epochs, const SgdrOptions& options);
  Learner& fit_sgdr(int64_t, int64_t, LearningRates, const SgdrOptions&);
  /// Trains a little with growing learning rates, undoes it, and suggests one;
  /// callbacks/schedules/lr_find.h.
  LrFind lr_find();
  LrFind lr_find(const LrFindOptions& options);
  /// Trains and validates on a few batches and undoes it, to find what is wrong
  /// before a long fit.
  Learner& dry_run(int64_t batches = 1);
  /// Ends the running fit after the step it is making, as
  /// FitResult::interrupted: the epoch is left as it is, without on_epoch_end.
  /// Safe from any thread and from a signal handler.
  void request_stop();

  // ---- Evaluation and predictions ----

  /// Loss and metrics over a split.
  Validation validate(Split split = Split::valid);
  /// Predictions for a split; of the training data in order, not augmented.
  Predictions get_preds(Split split = Split::valid);
  /// The same for any data that the model takes.
  /// \param with_losses  Each sample's loss too; needs targets and a loss that
  ///                     has a value for each sample.
  Predictions get_preds(const DataLoader& loader, bool with_losses = false);
  /// The mean over several augmented passes, weighted with a plain one;
  /// learner/predictions.h.
  Predictions tta(Split split = Split::valid, const TtaOptions& options = {});
  /// Predicts one sample: a tensor as the data set gives it, without the batch
  /// dimension ([H, W, C] kByte or [C, H, W] floating); or an image file or a
  /// cv::Mat (BGR), prepared as the data set does;
  /// vision/predict/image_predict.h.
  Prediction predict(const torch::Tensor& sample);
  Prediction predict(const std::filesystem::path& image_file);
  Prediction predict(const cv::Mat& image);

  // ---- Reports ----

  /// Layers, shapes, parameters and operations of the model;
  /// learner/report/model_summary.h.
  ModelSummary summary();
  /// What `fit` will do, measured on a few steps that are undone;
  /// callbacks/plan.h.
  TrainingPlan plan();
  TrainingPlan plan(const TrainingPlanOptions& options);
  /// The largest batch size whose training step fits into memory, found by
  /// trials that are undone; callbacks/max_batch_size.h.
  int64_t max_batch_size();
  int64_t max_batch_size(const MaxBatchSizeOptions& options);
  /// Writes what was trained so far as one HTML file; learner/report/report.h.
  void report(const std::filesystem::path& file);
  void report(const std::filesystem::path& file, const ReportOptions& options);

  // ---- Precision and devices ----

  /// Half model, BatchNorm in fp32, fp32 master weights, dynamic loss scale;
  /// callbacks/precision/mixed_precision.h.
  Learner& to_fp16();
  Learner& to_fp16(const MixedPrecisionOptions& options);
  /// The same in bfloat16, which needs no loss scale.
  Learner& to_bf16();
  /// Autocast and a loss scale; the weights stay fp32. As `torch.amp`.
  Learner& to_amp();
  Learner& to_amp(const AmpOptions& options);
  /// Back to fp32 computation and weights, exactly the master weights.
  Learner& to_fp32();
  /// Records the training step as a CUDA graph and replays it, for nets whose
  /// step is bound by kernel launches; learner/graph/step_graph.h.
  Learner& to_cuda_graph();
  Learner& to_cuda_graph(const CudaGraphOptions& options);
  /// Computes each batch on several devices at once, in this process; without a
  /// list on all CUDA devices. learner/distributed/parallel_model.h.
  Learner& to_parallel();
  Learner& to_parallel(const std::vector<torch::Device>& devices);
  /// Trains together with the processes that torchrun has started beside this
  /// one; in a single process it changes nothing. Every call that trains is
  /// then made by all of them.
  Learner& to_distributed();
  Learner& to_distributed(const DistributedOptions& options);
  /// The other processes, or null.
  const std::shared_ptr<Communicator>& communicator() const;
  /// True for the process that prints and writes files: rank 0.
  bool is_main_process() const;
  /// Training batches of an epoch, of this process.
  int64_t batches_per_epoch();
  /// The mean over all ranks, which call it together, of a number that each
  /// has; for callbacks that decide by a number of their own.
  double mean_over_ranks(double value);

  // ---- Saving ----

  /// The weights in fp32 (of a 16-bit model the master weights) and the
  /// buffers, by Python's names. What is fp32 already shares memory.
  StateDict state_dict() const;
  LoadReport load_state_dict(const StateDict&, const LoadOptions& = {});
  /// Writes `path / model_dir / name.safetensors`, fp32 weights that Python's
  /// safetensors opens, and beside it the optimizer's state.
  /// \throws IoError if they cannot be written; older ones are kept then.
  void save(const std::string& name);
  /// Reads what `save` wrote, in whatever precision the model is in now.
  /// \throws DataError, c10::ValueError if the files or their tensors do not
  ///         fit; the Learner then is as it was.
  Learner& load(const std::string& name);
  Learner& load(const std::string& name, const LoadModelOptions& options);
  /// Writes all that an exact continuation needs to `folder / step_<n>`;
  /// between fits, or from a callback's on_batch_end or on_epoch_end.
  void save_checkpoint(const std::filesystem::path& folder);
  /// Whether `folder` holds something that `resume` would try.
  bool has_checkpoint(const std::filesystem::path& folder) const;
  /// Reads the newest whole checkpoint of a run's folder, or one step's. The
  /// program then makes its calls of `fit` as in the first place: those that
  /// were complete return at once, the one that was cut off goes on, bit for
  /// bit. Call it once precision, frozen groups and callbacks are set up.
  /// \throws CheckpointError if there is none that is whole, or it is of other
  ///         data or settings; the Learner then is as it was.
  Learner& resume(const std::filesystem::path& folder);
  Learner& resume(const std::filesystem::path&, const ResumeOptions& options);
  /// Writes the model with all that a Predictor needs: one safetensors file;
  /// learner/weights/export_model.h.
  void export_model(const std::filesystem::path& path);
  void export_model(const std::filesystem::path&, const ExportOptions&);
  /// Writes the model in fp32 and eval mode as TorchScript;
  /// learner/weights/torchscript.h.
  void export_torchscript(
      const std::filesystem::path& path,
      const Tensors& example_inputs);

  // ---- Layer groups and hyper-parameters, also while fit runs ----

  /// Cuts the parameters, in order of registration, into layer groups: a new
  /// group begins at the first parameter of each named module ("layer3", "fc").
  Learner& split(const std::vector<std::string>& first_modules);
  /// Freezes all groups but the last, those before `group` (negative: from the
  /// end), or none. Normalisation layers go on learning by `train_bn`.
  Learner& freeze();
  Learner& freeze_to(int64_t group);
  Learner& unfreeze();
  int64_t layer_groups() const;
  void set_learning_rates(const LearningRates& lr);
  /// The learning rates now, one for each layer group.
  std::vector<double> learning_rates();
  /// \param values  One for each layer group. Groups that are spared weight
  ///                decay go on without it.
  void set_hyper_parameter(HyperParameter, const std::vector<double>& values);
  /// The gradients of the step that is being made, by the parameters' names:
  /// fp32, without loss scale, averaged over ranks, in every precision. From
  /// on_backward_end to on_step; the optimizer steps with what is written into
  /// them. Where the batch makes no step, because it only accumulates or
  /// `skip_step` is set, they are copies of what this rank has accumulated so
  /// far. Never waits for the device.
  std::vector<NamedGradient> gradients();

  // ---- Callbacks ----

  Learner& add(CallbackHandle callback);
  template <class C, class... A>
  Learner& add(A&&... arguments) {
    return add(
        CallbackHandle(std::make_shared<C>(std::forward<A>(arguments)...)));
  }
  template <class C>
  Learner& add(typename C::Options options) {
    return add(CallbackHandle(std::make_shared<C>(std::move(options))));
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
  /// Prints each event of the training loop with the callbacks that act there.
  Learner& show_training_loop();

  // ---- Parts ----

  TrainState& state();
  Recorder& recorder();
  Model& model();
  DataBunch& data();
  /// Created at the first call.
  torch::optim::Optimizer& optimizer();
  SinkImpl& sink();
  const LearnerOptions& options() const;
  bool is_fitting() const;
  /// What Tern's own callbacks and folders build on; no public header has it.
  LearnerParts& parts() const;

 private:
  std::unique_ptr<LearnerParts> parts_;
};

}  // namespace tern
