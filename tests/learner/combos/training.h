#pragma once

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/diagnose/max_batch_size.h"
#include "tern/callbacks/diagnose/plan.h"
#include "tern/callbacks/diagnose/profiler.h"
#include "tern/callbacks/diagnose/sync_audit.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/logging/activation_stats.h"
#include "tern/callbacks/logging/html_report.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/logging/tensorboard.h"
#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/mix.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/multi_optimizer.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/run_control.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/data/data_bunch.h"
#include "tern/data/stream_dataset.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/learner/combos/configuration.h"
#include "tern/tests/support/one_pass_stream.h"

/// A random Configuration as a program: its data, its Learner, its fits.
namespace tern::combos {

constexpr int64_t kInputs = 3, kHidden = 6, kMostSamples = 64;

// ---- Data and model ----

inline std::shared_ptr<Dataset>
make_dataset(const Configuration& c, int64_t size, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  torch::Tensor x, y;
  if (c.net == Net::sparse) {
    x = torch::randint(10, {size, kInputs}, generator, torch::kLong);
    y = (x.sum(1) > 13).to(torch::kLong);
  } else {
    // The first random numbers depend on how many are drawn.
    x = torch::randn({kMostSamples, kInputs}, generator).narrow(0, 0, size);
    y = (x.sum(1) > 0).to(torch::kLong);
    if (c.net == Net::doubles) x = x.to(torch::kDouble);
    if (c.check == Check::diverged && seed == 1) x[size / 2][0] = NAN;
  }
  return std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
}

/// The device of the cases: TERN_COMBOS_DEVICE, or the CPU.
inline torch::Device device() {
  const char* const name = std::getenv("TERN_COMBOS_DEVICE");
  return torch::Device(name ? name : "cpu");
}

inline DataBunch make_data(const Configuration& c) {
  DataBunch data = DataBunch::create(
      make_dataset(c, c.samples, 1),
      c.valid ? make_dataset(c, c.valid, 2) : nullptr,
      {.batch_size = c.batch_size, .seed = 3, .workers = 0});
  if (c.check == Check::ended) {
    std::shared_ptr<Dataset> train = make_dataset(c, c.samples, 1);
    if (c.stream > 0) {
      train = std::make_shared<StreamEpochs>(
          std::make_shared<testing_support::OnePassStream>(train, c.stream),
          c.samples);
    }
    data.train = std::make_shared<DataLoader>(
        train,
        DataLoaderOptions{
            .batch_size = c.batch_size,
            .drop_last = false,
            .seed = 3,
            .training = true,
            .workers = 0});
  }
  data.device = device();
  data.classes = {"below", "above"};
  return data;
}

struct NetImpl final : torch::nn::Cloneable<NetImpl> {
  explicit NetImpl(const Configuration& configuration) : c(configuration) {
    reset();
    if (c.net == Net::doubles) {
      for (const auto& module : children()) module->to(torch::kDouble);
    }
    if (c.net == Net::frozen_half) first->to(torch::kHalf);
  }

  void reset() override {
    const auto linear = [](int64_t in, int64_t out) {
      return torch::nn::Linear(in, out);
    };
    if (c.net == Net::two_parts) {
      a = register_module("a", linear(kInputs, 2));
      b = register_module("b", linear(kInputs, 2));
      return;
    }
    if (c.net == Net::sparse) {
      embedding = register_module(
          "first",
          torch::nn::Embedding(
              torch::nn::EmbeddingOptions(10, kHidden).sparse(true)));
    } else {
      first = register_module("first", linear(kInputs, kHidden));
    }
    if (c.batch_norm) {
      norm = register_module("norm", torch::nn::BatchNorm1d(kHidden));
    }
    second = register_module("second", linear(kHidden, kHidden));
    if (c.late_layer) late = register_module("late", linear(kHidden, kHidden));
    if (c.tied) register_parameter("tied", second->weight);
    head = register_module("head", linear(kHidden, 2));
    // Neither half nor bfloat16 can represent these values.
    position = register_buffer("position", torch::full({kHidden}, 0.1));
    register_buffer("large", torch::full({2}, 100001.F));
    register_buffer("steps", torch::full({1}, 70001, torch::kLong));
    const bool freezes = c.frozen_by_hand || c.net == Net::frozen_half;
    if (freezes && first) {
      for (torch::Tensor& p : first->parameters()) p.requires_grad_(false);
    }
  }

  void train(bool on) override {
    torch::nn::Module::train(on);
    if (norm && c.eval_batch_norm) norm->eval();
  }

  torch::Tensor forward(torch::Tensor x) {
    if (a) return a(x) + b(x);
    if (embedding) {
      x = embedding(x).mean(1);
    } else if (c.net == Net::frozen_half) {
      const auto type = x.scalar_type();
      x = first(x.to(torch::kHalf)).to(type);
    } else {
      x = first(x);
    }
    if (norm) x = norm(x);
    x = torch::relu(x + position.to(x.scalar_type()));
    if (c.dropout) x = torch::dropout(x, 0.5, is_training());
    if (c.noise) x = x + 0.1 * torch::randn_like(x);
    x = torch::tanh(second(x));
    if (c.tied) x = torch::tanh(torch::linear(x, second->weight));
    if (late && uses_late) x = x + late(x);
    return head(x);
  }

  Configuration c;
  bool uses_late = false;
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear first{nullptr}, second{nullptr}, late{nullptr},
      head{nullptr}, a{nullptr}, b{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor position;
};

// ---- Optimizers and callbacks ----

inline OptimizerFactory make_optimizer(Optim kind) {
  using torch::optim::AdamWOptions;
  using torch::optim::SGDOptions;
  switch (kind) {
    case Optim::adamw:
      return {};
    case Optim::sgd:
      return optimizer<optim::SGD>(SGDOptions(0.1).momentum(0.9));
    case Optim::adam:
      return optimizer<optim::Adam>();
    case Optim::lamb:
      return optimizer<optim::Lamb>();
    case Optim::larc:
      return optimizer<optim::Larc>();
    case Optim::radam:
      return optimizer<optim::RAdam>();
    case Optim::ranger:
      return ranger();
    case Optim::lookahead:
      return optimizer<optim::AdamW>(
          AdamWOptions(),
          optim::FusedOptions{.lookahead = {.k = 2, .alpha = 0.5}});
    case Optim::adamw_8bit:
      return optimizer<optim::AdamW>(
          AdamWOptions(),
          optim::FusedOptions{.optim_bits = 8, .min_8bit_size = 0});
    case Optim::torch_sgd:
      return optimizer<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9));
    case Optim::torch_adam:
      return optimizer<torch::optim::Adam>(torch::optim::AdamOptions());
    case Optim::torch_adamw:
      return optimizer<torch::optim::AdamW>(AdamWOptions());
    case Optim::torch_adagrad:
      return optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions());
    case Optim::torch_rmsprop:
      return optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions());
  }
  return {};
}

inline CallbackHandle step_lr(bool per_batch) {
  return std::make_shared<TorchScheduler>(
      [](torch::optim::Optimizer& optimizer) {
        return std::make_unique<torch::optim::StepLR>(optimizer, 1, 0.7);
      },
      TorchScheduler::Options{.per_batch = per_batch});
}

inline CallbackHandle make_extra(Extra extra) {
  switch (extra) {
    case Extra::accumulation:
      return std::make_shared<GradientAccumulation>(
          GradientAccumulation::Options{.batches = 2});
    case Extra::accumulation_samples:
      return std::make_shared<GradientAccumulation>(
          GradientAccumulation::Options{.samples = 15});
    case Extra::clip:
      return std::make_shared<GradientClip>(0.1);
    case Extra::clip_value:
      return std::make_shared<GradientClip>(
          GradientClip::Options{.max_value = 0.05});
    case Extra::penalty:
      return std::make_shared<GradientPenalty>(0.1);
    case Extra::mixup:
      return std::make_shared<MixUp>(0.4);
    case Extra::ema:
      return std::make_shared<Ema>(0.9);
    case Extra::swa:
      return std::make_shared<Swa>(Swa::Options{.start = 0.3});
    case Extra::swa_lr:
      return std::make_shared<Swa>(
          Swa::Options{.start = 0.3, .lr = 5e-3, .anneal_epochs = 2});
    case Extra::early_stopping:
      return std::make_shared<EarlyStopping>(
          EarlyStopping::Options{.min_delta = 0.02});
    case Extra::early_stopping_train:
      return std::make_shared<EarlyStopping>(
          EarlyStopping::Options{.monitor = "train_loss", .min_delta = 0.05});
    case Extra::early_stopping_metric:
      return std::make_shared<EarlyStopping>(EarlyStopping::Options{
          .monitor = "train_accuracy",
          .min_delta = 0.05});
    case Extra::plateau:
      return std::make_shared<ReduceLROnPlateau>(
          ReduceLROnPlateau::Options{.min_delta = 0.02});
    case Extra::plateau_metric:
      return std::make_shared<ReduceLROnPlateau>(ReduceLROnPlateau::Options{
          .monitor = "train_accuracy",
          .min_delta = 0.05});
    case Extra::train_metrics:
      return std::make_shared<TrainMetrics>();
    case Extra::stop_after:
      return std::make_shared<StopAfterNBatches>(3);
    case Extra::limit:
      return std::make_shared<LimitBatches>(
          LimitBatches::Options{.train = 2, .valid = 1});
    case Extra::overfit:
      return std::make_shared<OverfitBatches>(1);
    case Extra::run_control:
      return std::make_shared<RunControl>();
    case Extra::terminate_on_nan:
      return std::make_shared<TerminateOnNaN>();
    case Extra::save_model:
      return std::make_shared<SaveModel>();
    case Extra::csv:
      return std::make_shared<CSVLogger>();
    case Extra::json_lines:
      return std::make_shared<JsonLinesLogger>(
          JsonLinesLogger::Options{.every = 1});
    case Extra::tensorboard:
      return std::make_shared<TensorBoard>("board");
    case Extra::html:
      return std::make_shared<HtmlReport>();
    case Extra::activation_stats:
      return std::make_shared<ActivationStats>(
          ActivationStats::Options{.every = 2});
    case Extra::profiler:
      return std::make_shared<Profiler>(Profiler::Options{.show = false});
    case Extra::peak_memory:
      return std::make_shared<PeakMemory>();
    case Extra::sync_audit:
      return std::make_shared<SyncAudit>(SyncAudit::Options{.warm_up = 0});
    case Extra::flat_cos:
      return flat_cos();
    case Extra::torch_scheduler:
      return step_lr(/*per_batch=*/true);
    case Extra::save_checkpoint:
      return std::make_shared<SaveCheckpoint>(
          SaveCheckpoint::Options{.folder = "late", .durable = false});
    case Extra::precision:
      return std::make_shared<MixedPrecision>(torch::kBFloat16);
    case Extra::multi_optimizer: {
      const auto loss = [](const Batch& batch) {
        return batch.inputs.at(0).sum();
      };
      return std::make_shared<MultiOptimizer>(MultiOptimizer::Options{
          .parts = {{.name = "a", .loss = loss}, {.name = "b", .loss = loss}}});
    }
  }
  return {};
}

/// Scales the loss by the number of batches so far: a user's callback with a
/// state that is empty before the first batch.
class Counting final : public Callback {
 public:
  void on_backward_begin(Learner& learn) override {
    ++count_;
    auto& loss = learn.state().loss_grad;
    loss = loss * (1 + 0.01 * static_cast<double>(count_));
  }
  StateDict state_dict() const override {
    if (count_ == 0) return {};
    return {{"count", torch::scalar_tensor(count_, torch::kLong)}};
  }
  void load_state_dict(const StateDict& state) override {
    count_ = state.is_empty() ? 0 : state["count"].item<int64_t>();
  }

 private:
  int64_t count_ = 0;
};

// ---- Actions at an event ----

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};
struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("thrown by a callback") {}
};

/// The result of an evaluation inside a fit, and the weights that it used.
struct PassResult {
  Deed deed = Deed::nothing;
  double loss = 0;
  std::vector<double> metrics;
  torch::Tensor preds;
  StateDict weights;
  bool uses_late = false;
};

/// One start of the program, and its result.
struct Start {
  int64_t fit = 0;           // the current or the next fit
  int64_t stop_at = -1;      // the tick to stop at
  bool stop_kills = false;   // by throwing Killed; otherwise by request_stop
  bool makes_trials = true;  // lr_find, plan, dry_run
  std::vector<Deed> leaves_out;
  int64_t ticks = 0;       // events so far
  int64_t deeds = 0;       // actions so far
  bool is_acting = false;  // an action is running
  std::vector<PassResult> passes;
  std::function<void(Learner&, Event)> watch;  // called last at each event
  std::shared_ptr<NetImpl> net;
  std::unique_ptr<Learner> learn;
};

inline StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& entry : state) {
    copy.insert(entry.key(), entry.value().detach().clone());
  }
  return copy;
}

/// Performs the Configuration's actions and counts events.
class Acts final : public Callback {
 public:
  enum class Place { first, last, after_save_checkpoint };

  Acts(const Configuration& c, Start& start, Place place)
      : c_(c), start_(start), place_(place) {}

  void on_train_begin(Learner& l) override { at(l, Event::train_begin); }
  void on_epoch_begin(Learner& l) override { at(l, Event::epoch_begin); }
  void on_batch_begin(Learner& l) override { at(l, Event::batch_begin); }
  void on_loss_begin(Learner& l) override { at(l, Event::loss_begin); }
  void on_backward_begin(Learner& l) override { at(l, Event::backward_begin); }
  void on_backward_end(Learner& l) override { at(l, Event::backward_end); }
  void on_step(Learner& l) override { at(l, Event::step); }
  void on_step_end(Learner& l) override { at(l, Event::step_end); }
  void on_batch_end(Learner& l) override { at(l, Event::batch_end); }
  void on_epoch_end(Learner& l) override { at(l, Event::epoch_end); }
  void on_train_end(Learner& l) override { at(l, Event::train_end); }
  void on_eval_begin(Learner& l) override { at(l, Event::eval_begin); }
  void on_eval_end(Learner& l) override { at(l, Event::eval_end); }
  void on_interrupt(Learner& l) override { at(l, Event::interrupt); }

  int order() const override {
    switch (place_) {
      case Place::first:
        return callback_order::kFirst + 1;
      case Place::last:  // checkpoints of this event include no later changes
        return callback_order::kSaveCheckpoint - 2;
      default:
        return callback_order::kLast;
    }
  }

 private:
  void at(Learner& learn, Event event) {
    if (start_.is_acting) return;  // in an evaluation that an action runs
    TrainState& state = learn.state();
    const bool is_first = place_ == Place::first;
    if (is_first && event == Event::batch_begin && state.is_fitting) {
      start_.net->uses_late = state.epoch >= 1;
    }
    const Place ticks_at =
        c_.seed % 2 ? Place::first : Place::after_save_checkpoint;
    if (place_ == ticks_at && start_.ticks++ == start_.stop_at) {
      if (start_.stop_kills) throw Killed();
      learn.request_stop();
    }
    if (place_ == Place::after_save_checkpoint) {
      if (start_.watch) start_.watch(learn, event);
      return;
    }
    for (const Act& act : c_.acts) {
      if (act.is_last == is_first || !is_now(learn, event, act)) continue;
      bool is_left_out = false;
      for (const Deed deed : start_.leaves_out) is_left_out |= deed == act.deed;
      if (is_left_out) continue;
      start_.is_acting = true;
      const auto end = c10::make_scope_exit([&] { start_.is_acting = false; });
      ++start_.deeds;
      do_it(learn, event, act);
    }
  }

  bool is_now(Learner& learn, Event event, const Act& act) const {
    const TrainState& state = learn.state();
    const Moment& at = act.at;
    const bool in_trials = act.deed == Deed::freeze ||
                           act.deed == Deed::freeze_to_first ||
                           act.deed == Deed::unfreeze || act.deed == Deed::draw;
    if (!state.is_fitting || (state.is_dry_run && !in_trials)) return false;
    if (at.event != event || at.fit != start_.fit) return false;
    switch (event) {
      case Event::train_begin:
      case Event::train_end:
      case Event::interrupt:
        return true;
      case Event::epoch_begin:
      case Event::epoch_end:
      case Event::eval_begin:
      case Event::eval_end:
        return at.epoch == state.epoch;
      default:
        return at.epoch == state.epoch && at.batch == state.batch &&
               at.in_training == state.training;
    }
  }

  void do_it(Learner& learn, Event event, const Act& act) {
    switch (act.deed) {
      case Deed::nothing:
        break;
      case Deed::stop_epoch:
        learn.state().stop_epoch = true;
        break;
      case Deed::stop_training:
        learn.state().stop_training = true;
        break;
      case Deed::freeze:
        learn.freeze();
        break;
      case Deed::freeze_to_first:
        learn.freeze_to(1);
        break;
      case Deed::unfreeze:
        learn.unfreeze();
        break;
      case Deed::set_rates:
        if (const auto control = learn.find<RunControl>()) {
          control->set_learning_rates(2e-3);
        }
        break;
      case Deed::log:
        if (event == Event::batch_end || event == Event::epoch_end) {
          learn.log("user_value", static_cast<double>(learn.state().batch));
        }
        break;
      case Deed::draw:
        torch::rand({1});
        break;
      case Deed::validate:
        if (learn.data().valid) validate(learn, Split::valid, act.deed);
        break;
      case Deed::validate_train:
        validate(learn, Split::train, act.deed);
        break;
      case Deed::get_preds: {
        PassResult& pass = new_pass(learn, act.deed);
        pass.preds = learn.get_preds(Split::train).preds;
        break;
      }
      case Deed::predict: {
        PassResult& pass = new_pass(learn, act.deed);
        pass.preds = learn.predict({sample(learn)}).probabilities;
        break;
      }
      case Deed::look:
        learn.gradients();
        break;
      case Deed::stop:
        learn.request_stop();
        break;
      case Deed::fail:
        throw Thrown();
      case Deed::add:
        learn.add(make_extra(act.extra));
        break;
      case Deed::remove:
        remove(learn, act.extra);
        break;
    }
  }

  static torch::Tensor sample(Learner& learn) {
    return learn.data().train->dataset().get_batch({0}, {}).inputs[0][0];
  }

  PassResult& new_pass(Learner& learn, Deed deed) {
    start_.passes.push_back(
        {.deed = deed,
         .weights = copy_of(learn.state_dict()),
         .uses_late = start_.net->uses_late});
    return start_.passes.back();
  }

  void validate(Learner& learn, Split split, Deed deed) {
    PassResult& pass = new_pass(learn, deed);
    const Validation result = learn.validate(split);
    pass.loss = result.loss;
    for (const MetricValue& metric : result.metrics) {
      if (metric.name == "accuracy") pass.metrics.push_back(metric.value);
    }
  }

  static void remove(Learner& learn, Extra extra) {
    const CallbackHandle like = make_extra(extra);
    const Callback& kind = *like;
    for (const auto& callback : Callbacks(learn.callbacks())) {
      const Callback& one = *callback;
      if (typeid(one) == typeid(kind)) learn.remove(one);
    }
  }

  const Configuration& c_;
  Start& start_;
  Place place_;
};

// ---- The program ----

inline void set_precision(Learner& learn, const Configuration& c) {
  // Dividing by anything but a power of two rounds, differently in different
  // places.
  const bool is_odd = c.odd_scale && c.check != Check::look;
  switch (c.numbers) {
    case Numbers::fp32:
      break;
    case Numbers::bf16:
      learn.to_bf16({.master_weights = !c.odd_scale});
      break;
    case Numbers::fp16:
      learn.to_fp16({.growth_interval = 3, .force_fp16 = true});
      break;
    case Numbers::fp16_fixed:
      learn.to_fp16({.loss_scale = 512, .force_fp16 = true});
      break;
    case Numbers::amp_bf16:
      learn.to_amp({.dtype = torch::kBFloat16});
      break;
    case Numbers::amp_half:
      learn.to_amp(
          {.dtype = torch::kHalf,
           .scaler = GradScalerOptions{
               .growth_factor = is_odd ? 1.3 : 2,
               .backoff_factor = is_odd ? 0.7 : 0.5,
               .growth_interval = 2}});
      break;
  }
}

inline CallbackHandle multi_optimizer(const std::shared_ptr<NetImpl>& net) {
  const auto part = [](const std::string& name, torch::nn::Linear layer) {
    return MultiOptimizer::Part{
        .name = name,
        .loss = [layer](const Batch& batch) mutable {
          return layer(batch.inputs[0]).square().mean();
        }};
  };
  return std::make_shared<MultiOptimizer>(
      MultiOptimizer::Options{.parts = {part("a", net->a), part("b", net->b)}});
}

/// Sets up the program's Learner, before its first fit.
inline void set_up(
    Start& start,
    const Configuration& c,
    const std::filesystem::path& folder,
    const std::vector<CallbackHandle>& more = {}) {
  torch::manual_seed(7);
  start.net = std::make_shared<NetImpl>(c);
  Model model(start.net);
  if (c.net == Net::lora) {
    model = add_lora(
        model,
        {.rank = 2, .targets = {"first", "second"}, .train = {"head"}});
  }
  start.learn = std::make_unique<Learner>(
      make_data(c),
      model,
      LearnerOptions{
          .optimizer = make_optimizer(c.optimizer),
          .metrics = {accuracy()},
          .weight_decay = c.weight_decay,
          .true_weight_decay = c.true_weight_decay,
          .path = folder,
          .seed = 11,
          .sink = silent()});
  Learner& learn = *start.learn;
  if (c.net == Net::two_parts) {
    learn.add(multi_optimizer(start.net));
  } else if (c.net != Net::lora) {
    learn.split({"head"});
    if (c.frozen_group) learn.freeze();
  }
  if (c.parallel) learn.to_parallel({device()});
  set_precision(learn, c);
  for (const Extra extra : c.extras) learn.add(make_extra(extra));
  if (c.counts) learn.add<Counting>();
  for (const CallbackHandle& callback : more) learn.add(callback);
  for (const auto place :
       {Acts::Place::first,
        Acts::Place::last,
        Acts::Place::after_save_checkpoint}) {
    learn.add<Acts>(c, start, place);
  }
}

inline StateDict shifted(const StateDict& state, double by) {
  StateDict result;
  for (const auto& entry : state) {
    const torch::Tensor& t = entry.value();
    const bool moves = t.is_floating_point() && entry.key() != "large";
    result.insert(entry.key(), moves ? t.detach() + by : t.detach().clone());
  }
  return result;
}

/// A dry run reports a result that is impossible.
struct Misjudged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void call_lr_find(Learner& learn) {
  constexpr int64_t kBatches = 8;
  const LrFind found = learn.lr_find(
      {.start = 1e-5, .end = 1e-2, .num_it = kBatches, .stop_div = false});
  const bool is_stopped = learn.state().result == FitResult::interrupted;
  const bool may_end_early =
      learn.find<StopAfterNBatches>() || learn.find<TerminateOnNaN>();
  if (is_stopped || may_end_early || std::ssize(found.losses) == kBatches) {
    return;
  }
  throw Misjudged(fmt::format(
      "lr_find recorded {} losses of {}",
      found.losses.size(),
      kBatches));
}

inline void call_between(Start& start, Between between) {
  Learner& learn = *start.learn;
  switch (between) {
    case Between::nothing:
      break;
    case Between::lr_find:
      if (start.makes_trials) call_lr_find(learn);
      break;
    case Between::plan:
      if (start.makes_trials) learn.plan({.batches = 2});
      break;
    case Between::dry_run:
      if (start.makes_trials) dry_run(learn);
      break;
    case Between::max_batch_size:
      if (start.makes_trials) max_batch_size(learn, {.first = 4, .most = 8});
      break;
    case Between::freeze:
      learn.freeze();
      break;
    case Between::unfreeze:
      learn.unfreeze();
      break;
    case Between::put_weights_in:
      learn.load_state_dict(shifted(learn.state_dict(), 0.25));
      break;
    case Between::save_and_load:
      learn.save("kept");
      learn.load("kept");
      break;
    case Between::validate:
      if (learn.data().valid) learn.validate();
      break;
    case Between::load_best:
      if (learn.find<SaveModel>()) learn.load("model");
      break;
  }
}

inline void call_fit(Learner& learn, const FitCall& fit) {
  switch (fit.schedule) {
    case Schedule::flat:
      learn.fit(fit.epochs, fit.lr);
      break;
    case Schedule::one_cycle:
      learn.fit_one_cycle(fit.epochs, fit.lr);
      break;
    case Schedule::flat_cos:
      learn.fit(fit.epochs, fit.lr, {flat_cos()});
      break;
    case Schedule::sgdr:
      learn.fit(fit.epochs, fit.lr, {sgdr({.cycles = 1})});
      break;
    case Schedule::torch_epoch:
      learn.fit(fit.epochs, fit.lr, {step_lr(/*per_batch=*/false)});
      break;
    case Schedule::torch_batch:
      learn.fit(fit.epochs, fit.lr, {step_lr(/*per_batch=*/true)});
      break;
    case Schedule::fine_tune:
      learn.fine_tune(fit.epochs);
      break;
  }
}

inline bool is_trial(Between between) {
  return between >= Between::lr_find && between <= Between::max_batch_size;
}

/// Runs the program.
inline void run_program(Start& start, const Configuration& c) {
  for (size_t i = 0; i < c.fits.size(); ++i) {
    start.fit = static_cast<int64_t>(i);
    call_between(start, c.fits[i].before);
    call_fit(*start.learn, c.fits[i]);
  }
}

}  // namespace tern::combos
