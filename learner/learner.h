#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/callback.h"
#include "tern/learner/copy_stream.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learning_rates.h"
#include "tern/learner/loss.h"
#include "tern/learner/metric.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/model.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/precision_policy.h"
#include "tern/learner/recorder.h"
#include "tern/learner/sink.h"
#include "tern/learner/train_state.h"

namespace tern {

struct Checkpoint;     // learner/checkpoint.h
struct ExportOptions;  // learner/export_model.h
struct ResumeOptions;
struct LoadModelOptions;  // learner/save.h
struct LrFind;            // callbacks/lr_find.h
struct LrFindOptions;
struct ModelSummary;  // learner/model_summary.h
struct TrainingPlan;  // callbacks/plan.h
struct TrainingPlanOptions;
struct MaxBatchSizeOptions;  // callbacks/max_batch_size.h
struct ReportOptions;        // learner/report.h
struct CudaGraphOptions;     // learner/step_graph.h
class StepGraph;
struct AmpOptions;       // callbacks/amp.h
struct FineTuneOptions;  // callbacks/one_cycle.h
struct FlatCosOptions;
struct OneCycleOptions;
struct SgdrOptions;
struct MixedPrecisionOptions;  // callbacks/mixed_precision.h
class MasterWeights;           // learner/master_weights.h
struct TtaOptions;             // learner/tta.h
struct ResumePlan;             // learner/resume.h
struct DistributedOptions;     // callbacks/distributed.h
class Communicator;            // learner/communicator.h
class TrainingShard;           // learner/training_shard.h

struct LearnerOptions {
  // ---- What is learnt ----

  /// Unset: cross-entropy for kLong targets, mean squared error for others.
  Loss loss = {};
  /// Unset: the fused `optim::AdamW` with fastai's betas (0.9, 0.99).
  OptimizerFactory optimizer = {};
  /// Shown in the table, computed on the validation data.
  std::vector<Metric> metrics = {};
  Callbacks callbacks = {};

  // ---- How fast, how much decay; fastai v1's defaults ----

  double lr = 3e-3;
  double weight_decay = 1e-2;
  /// Decay weights directly (`w *= 1 - lr * wd`) with every optimizer, not
  /// through the gradient.
  bool true_weight_decay = true;
  /// Decay normalisation layers and biases too.
  bool bn_weight_decay = true;
  /// Normalisation layers of frozen groups go on learning.
  bool train_bn = true;

  // ---- Where things go ----

  /// Relative names of files and folders, of callbacks too, are within it.
  std::filesystem::path path = ".";
  std::string model_dir = "models";
  /// Not 0: seeds LibTorch's generators (dropout) when the Learner is made.
  uint64_t seed = 0;
  /// Where words go; empty: the terminal.
  Sink sink = {};
  /// End each row of the table with the epoch's losses as a line of blocks.
  bool sparkline = false;
};

/// Result of a pass over validation data.
struct Validation {
  double loss = 0;  // mean over all samples
  std::vector<MetricValue> metrics;

  /// `validate()["accuracy"]`. \throws c10::ValueError that lists the names
  /// there are.
  double operator[](const std::string& metric) const {
    return metric_value(metrics, metric, "validate()");
  }
};

/// The model's answers to a whole data set, in its order, on the CPU.
struct Predictions {
  torch::Tensor preds;    // [N, ...] kFloat, with the loss's activation applied
  torch::Tensor targets;  // [N, ...]; undefined if the data has none
  torch::Tensor losses;   // [N] kFloat; undefined unless asked for
};

/// The model's answer to one sample.
struct Prediction {
  std::string label;            // name of the likeliest class; may be empty
  int64_t index = -1;           // its index; -1 when there are no classes
  torch::Tensor probabilities;  // one sample's answer, activated, on the CPU
};

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
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // ---- Training; learner/fit.cpp ----

  /// Trains for `epochs` epochs. The optimizer is made at the first fit and
  /// kept. `extra` callbacks take part in this fit alone.
  Learner& fit(int64_t epochs, LearningRates lr = {}, Callbacks extra = {});
  /// Trains with a schedule; callbacks/one_cycle.h has the options.
  Learner& fit_one_cycle(int64_t epochs, LearningRates max_lr = {});
  Learner& fit_one_cycle(int64_t epochs, const OneCycleOptions& options);
  Learner& fit_one_cycle(
      int64_t epochs,
      LearningRates max_lr,
      const OneCycleOptions& options);
  /// Trains the last layer group for some epochs, then all.
  Learner& fine_tune(int64_t epochs);
  Learner& fine_tune(int64_t epochs, const FineTuneOptions& options);
  /// A flat rate, then half a cosine down.
  Learner& fit_flat_cos(int64_t epochs, LearningRates lr = {});
  Learner& fit_flat_cos(int64_t epochs, const FlatCosOptions& options);
  Learner&
  fit_flat_cos(int64_t epochs, LearningRates lr, const FlatCosOptions& options);
  /// Cosines down to 0 with warm restarts; the first takes `cycle_epochs`.
  Learner&
  fit_sgdr(int64_t cycles, int64_t cycle_epochs, LearningRates max_lr = {});
  Learner&
  fit_sgdr(int64_t cycles, int64_t cycle_epochs, const SgdrOptions& options);
  Learner& fit_sgdr(
      int64_t cycles,
      int64_t cycle_epochs,
      LearningRates max_lr,
      const SgdrOptions& options);
  /// Trains a little with growing rates, undoes it, and says which rate to
  /// take; callbacks/lr_find.h.
  LrFind lr_find();
  LrFind lr_find(const LrFindOptions& options);
  /// Trains and validates on a few batches and undoes it, to find what is
  /// wrong before a long fit; callbacks/dry_run.cpp.
  Learner& dry_run(int64_t batches = 1);
  Validation validate(Split split = Split::valid);
  /// Asks the running fit to end after the step it is making, as
  /// FitResult::interrupted: the epoch is left as it is, without on_epoch_end.
  /// Safe from any thread and from a signal handler; without a running fit it
  /// does nothing.
  void request_stop() {
    (communicator_ ? stop_wanted_ : stop_requested_) = true;
  }

  // ---- Asking; learner/predict.cpp, learner/tta.cpp ----

  /// Asks for a whole split; of the training data in order, not augmented.
  Predictions get_preds(Split split = Split::valid);
  /// The same for any data that the model takes: `loader.in_order()` of a
  /// split, images without labels (vision/image_predict.h).
  /// \param with_losses  What each sample costs too; needs targets and a loss
  ///                     that has a value for each sample.
  Predictions get_preds(const DataLoader& loader, bool with_losses = false);
  /// The mean over several augmented passes, weighed with a plain one;
  /// learner/tta.h.
  Predictions tta(Split split = Split::valid);
  Predictions tta(Split split, const TtaOptions& options);
  /// \param sample  One input without the batch dimension, as the data set
  ///                makes it: [H, W, C] kByte or [C, H, W] floating.
  Prediction predict(const torch::Tensor& sample);

  // ---- Looking; docs/reports.md ----

  /// Layers, shapes, parameters and work of the model for one batch of the
  /// training data; learner/model_summary.h.
  ModelSummary summary();
  /// What `fit` will do, measured on a few steps that are undone;
  /// callbacks/plan.h.
  TrainingPlan plan();
  TrainingPlan plan(const TrainingPlanOptions& options);
  /// The largest batch size whose training step fits into memory, found by
  /// trials that are undone; callbacks/max_batch_size.h.
  int64_t max_batch_size();
  int64_t max_batch_size(const MaxBatchSizeOptions& options);
  /// Writes what was trained so far as one HTML file; learner/report.h.
  /// \throws IoError if it cannot be written.
  void report(const std::filesystem::path& file);
  void report(const std::filesystem::path& file, const ReportOptions& options);

  // ---- Precision; callbacks/mixed_precision.cpp, callbacks/amp.cpp ----

  /// Half model, BatchNorm in fp32, fp32 masters, dynamic loss scale.
  Learner& to_fp16();
  Learner& to_fp16(const MixedPrecisionOptions& options);
  /// The same in bfloat16, which needs no loss scale.
  Learner& to_bf16();
  /// Autocast and a loss scale; the weights stay fp32. As `torch.amp`.
  Learner& to_amp();
  Learner& to_amp(const AmpOptions& options);
  /// Back to fp32 computation and weights, exactly the masters.
  Learner& to_fp32();

  // ---- One launch a step; learner/step_graph.h ----

  /// Records the training step as a CUDA graph and replays it, for nets whose
  /// step is bound by launching kernels. Results stay those of the plain step;
  /// where it cannot be replayed the plain step is made and the sink told why.
  /// \throws c10::ValueError on a CPU.
  Learner& to_cuda_graph();
  Learner& to_cuda_graph(const CudaGraphOptions& options);
  /// What makes the steps of a fit, or null: they are made as they stand.
  const std::shared_ptr<StepGraph>& step_graph() const { return step_graph_; }
  void set_step_graph(std::shared_ptr<StepGraph> graph);

  // ---- Several devices; learner/parallel_model.cpp ----

  /// Computes each batch on several devices at once, in this process; the first
  /// one is the data's. Without a list: on all CUDA devices. Precision,
  /// validation and checkpoints stay as they are; {one device} undoes it.
  /// learner/parallel_model.h has the conditions.
  Learner& to_parallel();
  Learner& to_parallel(const std::vector<torch::Device>& devices);

  // ---- Several processes; callbacks/distributed.cpp ----

  /// Trains together with the processes that torchrun has started beside this
  /// one; in a single process it changes nothing. Every call that trains or
  /// validates is then made by all of them.
  Learner& to_distributed();
  Learner& to_distributed(const DistributedOptions& options);
  /// The other processes, or null.
  const std::shared_ptr<Communicator>& communicator() const {
    return communicator_;
  }
  /// From now on each epoch trains on this rank's share of the data, and the
  /// validation of an epoch is shared out.
  void set_communicator(std::shared_ptr<Communicator> ranks);
  /// What this rank keeps of a training that is divided among ranks, or null.
  /// With it, all ranks make the calls that save.
  const std::shared_ptr<TrainingShard>& training_shard() const {
    return training_shard_;
  }
  void set_training_shard(std::shared_ptr<TrainingShard> shard) {
    training_shard_ = std::move(shard);
  }
  /// The one that prints and writes files.
  bool is_main_process() const;
  /// Tells whoever holds something made from the weights or the optimizer's
  /// state that others were put in: recorded graphs, callbacks (on_load). The
  /// Learner's own calls do so.
  void state_was_replaced();
  /// Training batches of an epoch, of this process.
  int64_t batches_per_epoch();
  /// The mean over all ranks of a number that each has, the same everywhere;
  /// `value` in a single process. All ranks call it together. For callbacks
  /// that decide by a number of their own, such as the loss of one batch.
  double mean_over_ranks(double value);

  // ---- Keeping what was learnt; learner/save.cpp, learner/resume.cpp ----

  /// The weights in fp32 (of a 16-bit model the masters) and the buffers, by
  /// Python's names. What is fp32 already shares memory with the model.
  StateDict state_dict() const;
  /// Copies `state` into the model and its masters; see Model::load_state_dict.
  LoadReport load_state_dict(
      const StateDict& state,
      const LoadOptions& options = {});
  /// Writes `path / model_dir / name.safetensors`, fp32 weights that Python's
  /// safetensors opens, and beside it the optimizer's state.
  /// \throws IoError if they cannot be written; older ones are kept then.
  void save(const std::string& name);
  /// Reads what `save` wrote, in whatever precision the model is in now.
  /// \throws DataError, c10::ValueError if the files or their tensors do not
  ///         fit; the Learner then is as it was.
  Learner& load(const std::string& name);
  Learner& load(const std::string& name, const LoadModelOptions& options);
  /// Removes what `save` wrote under the name, if it is there.
  void remove_saved(const std::string& name);

  /// Writes all that an exact continuation needs to `folder / step_<n>`.
  /// Between fits, or from a callback's on_batch_end or on_epoch_end.
  /// \throws IoError; what was in the folder is kept then.
  void save_checkpoint(const std::filesystem::path& folder);
  /// Whether `folder` holds something that `resume` would try: for programs
  /// that go on when they are started again.
  bool has_checkpoint(const std::filesystem::path& folder) const;
  /// The same, in memory.
  Checkpoint capture_checkpoint();
  /// Reads the newest whole checkpoint of a run's folder, or one step's. The
  /// program then makes its calls of `fit` as in the first place: those that
  /// were complete return at once, and the one that was cut off goes on where
  /// the checkpoint stands, bit for bit as if nothing had happened. Call it
  /// once everything (precision, frozen groups, callbacks) is set up.
  /// \throws CheckpointError if there is none that is whole, or it is of other
  ///         data or settings; the Learner then is as it was.
  Learner& resume(const std::filesystem::path& folder);
  Learner& resume(
      const std::filesystem::path& folder,
      const ResumeOptions& options);
  /// Writes the model with all that a Predictor, in a program without data and
  /// Learner, needs to know: one safetensors file; learner/export_model.h.
  /// \throws c10::ValueError for a model that is no HasArchitecture; IoError.
  void export_model(const std::filesystem::path& path);
  void export_model(
      const std::filesystem::path& path,
      const ExportOptions& options);
  /// Writes the model in fp32 and eval mode as TorchScript, which Python's
  /// `torch.jit.load` runs without Tern; see learner/torchscript.h.
  void export_torchscript(
      const std::filesystem::path& path,
      const Tensors& example_inputs);
  /// Names this training in its checkpoints, over all continuations.
  const std::string& run_id();

  // ---- Layer groups; learner/layer_groups.cpp ----

  /// Cuts the parameters, in order of registration, into layer groups: a new
  /// group begins at the first parameter of each named module ("layer3", "fc").
  Learner& split(const std::vector<std::string>& first_modules);
  /// Freezes all groups but the last, those before `group` (negative: from the
  /// end), or none. Normalisation layers go on learning by `train_bn`.
  Learner& freeze();
  Learner& freeze_to(int64_t group);
  Learner& unfreeze();
  int64_t layer_groups() const;

  // ---- Hyper-parameters, also while fit runs; learner/layer_groups.cpp ----

  void set_learning_rates(const LearningRates& lr);
  /// The rates now, one for each layer group.
  std::vector<double> learning_rates();
  /// \param values  One for each layer group. Groups that are spared weight
  ///                decay go on without it.
  void set_hyper_parameter(
      HyperParameter hyper,
      const std::vector<double>& values);
  /// The gradients of the step that is being made, by the parameters' names:
  /// fp32, without loss scale, averaged over ranks, in every precision. From
  /// on_backward_end to on_step; what is written into them is what the
  /// optimizer steps with. Where the batch makes no step, because it only
  /// accumulates or `skip_step` is set, they are copies of what this rank has
  /// accumulated so far. A parameter without a gradient is left out. Nothing
  /// waits for the device.
  std::vector<NamedGradient> gradients();

  /// Whether the optimizer has a momentum, as Adam's first beta is one.
  bool has_momentum();

  // ---- Parts ----

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
  const Callbacks& callbacks() const { return callbacks_; }
  /// The first callback of class C, or null.
  template <class C>
  std::shared_ptr<C> find() const {
    for (const std::shared_ptr<Callback>& callback : callbacks_) {
      if (auto found = std::dynamic_pointer_cast<C>(callback)) return found;
    }
    return nullptr;
  }
  /// Tells the sink of each event of the training loop and of the callbacks
  /// that act there, in the order in which they run.
  Learner& show_training_loop();

  TrainState& state() { return state_; }
  Recorder& recorder() { return *recorder_; }
  Model& model() { return model_; }
  DataBunch& data() { return data_; }
  SinkImpl& sink() { return *options_.sink; }
  const LearnerOptions& options() const { return options_; }
  const std::vector<Metric>& metrics() const { return options_.metrics; }
  bool is_fitting() const { return is_fitting_; }
  /// The callback that is called just now, or null; for those that watch.
  const Callback* running_callback() const { return running_callback_; }
  /// Whether somebody has called request_stop since the running fit began.
  bool stop_requested() const { return stop_requested_; }

  /// Made at the first call.
  torch::optim::Optimizer& optimizer();
  bool has_optimizer() const { return optimizer_ != nullptr; }
  /// The fp32 masters of a half-precision model, or null.
  const std::shared_ptr<MasterWeights>& masters() const { return masters_; }
  /// Sets or removes the masters. The optimizer's state moves with its
  /// parameters.
  void set_masters(std::shared_ptr<MasterWeights> masters);

 private:
  friend class LearnerSnapshot;  // learner/snapshot.h
  friend class StepGraph;        // learner/step_graph.h
  friend class TrainingState;    // learner/training_state.h
  class FitScope;
  class EvalScope;
  struct ParamGroupKind {
    int64_t layer_group;
    bool spares_decay;
  };

  enum class Place { outside_epoch, in_epoch, at_epoch_end };

  bool hears(const CallbackHandle& callback, Event event) const;
  void run(Event event);
  void run_exception(const std::exception& error);
  bool was_done_before_resume(int64_t epochs, const LearningRates& lr);
  void continue_from_checkpoint(bool in_epoch);
  std::exception_ptr run_all(Event event, bool failed);
  void train_epochs(int64_t epochs);
  void train_one_epoch();
  void train_step();
  void begin_window();
  void plan_step();
  void make_step();
  void weigh_loss();
  void start_batch(Batch batch);
  void end_batch();
  void forward(bool with_loss);
  Tensors run_model(const Tensors& inputs);
  Activation activation();
  void choose_loss();
  torch::Tensor compute_loss();
  void step();
  void zero_grad();
  void validate_after_epoch();
  void forget_validation();
  // Throws what says more, if that was the error; learner/out_of_memory.cpp.
  void explain_out_of_memory(
      const std::exception& error,
      const char* part_of_step);
  void check_common_begin();
  void check_common_start();
  void agree();
  void agree_to_stop_validation(const DataLoader& whole);
  void add_up_over_ranks(const torch::Tensor& sums);
  const DataLoader& training_loader();
  const DataLoader& shard_of(const DataLoader& loader, bool equal_batches);
  template <class Each>
  void evaluate(const DataLoader& loader, bool with_loss, const Each& each);
  Validation evaluate_metrics(Split split, bool is_common);
  void share_buffers();
  StepWindow::Samples samples_of_batch();
  void complete_gradients();
  class AugmentedPass;
  std::vector<torch::optim::OptimizerParamGroup> make_param_groups();
  void make_optimizer();

  DataBunch data_;
  Model model_;
  LearnerOptions options_;
  TrainState state_;
  std::shared_ptr<Recorder> recorder_;
  Callbacks callbacks_;  // in the order in which they run
  const Callback* running_callback_ = nullptr;
  Callbacks removed_callbacks_;  // while callbacks run
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<MasterWeights> masters_;
  std::vector<std::vector<ModelTensor>> groups_;   // parameters by layer group
  std::vector<ParamGroupKind> param_group_kinds_;  // of the optimizer's groups
  Tensors host_targets_;  // of this batch, before the transfer
  CopyStream copy_stream_;
  int64_t epochs_begun_ = 0;  // over all fits; keys the shuffle
  int64_t fits_done_ = 0;
  int64_t first_batch_ = 0;   // of the epoch that a checkpoint was made in
  int64_t batches_done_ = 0;  // of this epoch
  Place place_ = Place::outside_epoch;
  std::optional<int64_t> augmented_pass_;            // of tta
  std::map<std::string, std::string> fit_settings_;  // for checkpoints
  std::string run_;
  // Of the training data, for checkpoints; made when one is captured.
  std::pair<std::shared_ptr<const Dataset>, std::string> fingerprint_;
  std::unique_ptr<ResumePlan> resume_;
  std::optional<StateDict> resumed_logs_;  // until a resumed fit ends
  int64_t evaluations_ = 0;                // going on, one within the other
  std::thread::id fit_thread_;             // while fit runs
  std::atomic<bool> is_fitting_ = false;
  std::atomic<bool> stop_requested_ = false;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<TrainingShard> training_shard_;
  std::shared_ptr<StepGraph> step_graph_;
  bool is_parallel_ = false;
  // By what is divided, which a shard keeps, and for training or not.
  std::map<std::pair<const Sampler*, bool>, std::shared_ptr<DataLoader>>
      shards_;
  StepWindow window_;
  std::shared_ptr<PrecisionPolicy> precision_;  // of this fit; null: fp32
  double weight_ = 1;           // of this batch's loss in its step
  bool has_gradients_ = false;  // between backward and the step
  bool begins_common_evaluation_ = false;
  std::atomic<bool> stop_wanted_ = false;
};

}  // namespace tern
