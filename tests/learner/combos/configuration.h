#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tern/learner/callback.h"

/// Random training runs, as plain values: anything that a user's program may
/// combine.
namespace tern::combos {

/// What a case checks; each is a function in checks.h.
enum class Check {
  resume,       // a stopped and restarted run ends like an undisturbed one
  trial,        // lr_find, plan and dry_run do not change the result
  pass,         // nor do validate, get_preds and predict in a callback
  look,         // nor does a callback that reads the gradients
  by_hand,      // same result as a loop in plain LibTorch
  exception,    // after a callback throws, the Learner is still usable
  late,         // add or remove at the start of a fit acts as before the fit
  rate_zero,    // a fit with lr 0 changes no weights, even loaded ones
  saved,        // save_checkpoint writes what the Learner holds
  branch,       // so does a run that resumed from an earlier step
  changed,      // resume names a different lr; with allow_change it applies
  round_trip,   // conversion to 16 bits and back changes no untrained tensor
  frozen,       // frozen weights and statistics of LoRA's base are unchanged
  diverged,     // TerminateOnNaN keeps the weights finite
  late_freeze,  // freezing during a fit freezes the right parameters
  killed,       // repeatedly by SIGKILL at random moments
  ended,        // a stream that ends equals an epoch of its length
};
constexpr int kChecks = 17;

enum class Net {
  dense,
  sparse,       // an embedding with sparse gradients
  frozen_half,  // with a frozen part in half precision
  doubles,      // all in kDouble
  lora,         // adapters on a frozen network
  two_parts,    // with MultiOptimizer
};
enum class Numbers { fp32, bf16, fp16, fp16_fixed, amp_bf16, amp_half };
enum class Optim {
  adamw,
  sgd,
  adam,
  lamb,
  larc,
  radam,
  ranger,
  lookahead,
  adamw_8bit,
  torch_sgd,
  torch_adam,
  torch_adamw,
  torch_adagrad,
  torch_rmsprop,
};
enum class Schedule {
  flat,
  one_cycle,
  flat_cos,
  sgdr,
  torch_epoch,
  torch_batch,
  fine_tune,
};
/// What the program calls before a fit.
enum class Between {
  nothing,
  lr_find,
  plan,
  dry_run,
  max_batch_size,
  freeze,
  unfreeze,
  put_weights_in,  // load_state_dict
  save_and_load,
  validate,
  load_best,  // the weights that SaveModel saved
};
enum class Extra {  // built-in callbacks
  accumulation,
  accumulation_samples,
  clip,
  clip_value,
  penalty,
  mixup,
  ema,
  swa,
  swa_lr,
  early_stopping,
  early_stopping_train,
  early_stopping_metric,
  plateau,
  plateau_metric,
  train_metrics,
  stop_after,
  limit,
  overfit,
  run_control,
  terminate_on_nan,
  save_model,
  csv,
  json_lines,
  tensorboard,
  html,
  activation_stats,
  profiler,
  peak_memory,
  sync_audit,
  flat_cos,
  torch_scheduler,
  // Only added and removed during a fit:
  save_checkpoint,
  precision,
  multi_optimizer,
};
constexpr int kExtras = 34;

/// What a user's callback does at one event.
enum class Deed {
  nothing,
  stop_epoch,
  stop_training,
  freeze,
  freeze_to_first,
  unfreeze,
  set_rates,  // through RunControl
  log,
  draw,  // random numbers
  validate,
  validate_train,
  get_preds,
  predict,
  look,  // reads the gradients
  stop,  // request_stop
  fail,
  add,
  remove,
};

struct Moment {
  int64_t fit = 0, epoch = 0, batch = 0;
  Event event = Event::batch_end;
  bool in_training = true;
};

struct Act {
  Deed deed = Deed::nothing;
  Moment at;
  Extra extra = Extra::ema;  // for add and remove
  bool is_last = false;      // after Tern's callbacks, not before them
};

struct FitCall {
  Schedule schedule = Schedule::flat;
  int64_t epochs = 2;
  double lr = 1e-2;
  Between before = Between::nothing;
};

struct Configuration {
  uint64_t seed = 1;
  Check check = Check::resume;

  int64_t samples = 40, valid = 20, batch_size = 8;
  int64_t stream = 0;  // read `samples` in order, from a stream of this length
  Net net = Net::dense;
  bool batch_norm = false, dropout = false, noise = false, tied = false;
  bool late_layer = false;       // has gradients from the second epoch on
  bool frozen_by_hand = false;   // freezes the first layer
  bool frozen_group = false;     // split and freeze
  bool parallel = false;         // to_parallel with one device
  bool eval_batch_norm = false;  // the model keeps its BatchNorm in eval mode

  Numbers numbers = Numbers::fp32;
  bool odd_scale = false;  // loss scales that float32 rounds; no master weights
  Optim optimizer = Optim::adamw;
  double weight_decay = 1e-2;
  bool true_weight_decay = true;

  std::vector<Extra> extras = {};
  bool counts = false;  // with a user's callback whose state is empty at first
  std::vector<Act> acts = {};
  std::vector<FitCall> fits = {{}};

  // For checks.
  int64_t every_steps = 1;
  int64_t keep = 0;
  int64_t way = 0;             // request_stop, an exception, or a step's folder
  std::vector<int64_t> stops;  // per start, in thousandths of its events
  int64_t step = 0;            // the checkpoint to resume from
};

// ---- Drawing ----

/// Draws the same numbers with every standard library, unlike std's
/// distributions.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}

  int64_t below(int64_t count) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
  }
  bool one_in(int64_t count) { return below(count) == 0; }
  template <class T>
  T of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(std::ssize(values)))];
  }

 private:
  std::mt19937_64 engine_;
};

inline Moment draw_moment(Draw& draw, const Configuration& c, bool anywhere) {
  static const std::vector<Event> kAll = {
      Event::train_begin,
      Event::epoch_begin,
      Event::batch_begin,
      Event::loss_begin,
      Event::backward_begin,
      Event::backward_end,
      Event::step,
      Event::step_end,
      Event::batch_end,
      Event::epoch_end,
      Event::train_end,
      Event::eval_begin,
      Event::eval_end,
      Event::interrupt};
  static const std::vector<Event> kUsual = {
      Event::epoch_begin,
      Event::batch_begin,
      Event::batch_end,
      Event::epoch_end};
  Moment m;
  m.fit = draw.below(std::ssize(c.fits));
  m.epoch = draw.below(c.fits[m.fit].epochs);
  m.batch = draw.below(4);
  m.event = draw.of(anywhere ? kAll : kUsual);
  m.in_training = !(anywhere && draw.one_in(3));
  if (m.event == Event::interrupt || m.event == Event::train_begin) m.epoch = 0;
  return m;
}

inline bool has(const Configuration& c, Extra extra) {
  for (const Extra one : c.extras) {
    if (one == extra) return true;
  }
  return false;
}

inline Configuration draw_configuration(uint64_t seed) {
  Draw draw(seed);
  Configuration c;
  c.seed = seed;
  static const std::vector<Check> kOften = {
      Check::resume,
      Check::resume,
      Check::resume,
      Check::resume,
      Check::trial,
      Check::trial,
      Check::pass,
      Check::pass,
      Check::late,
      Check::exception,
      Check::by_hand};
  c.check = draw.one_in(2) ? draw.of(kOften)
                           : static_cast<Check>(draw.below(kChecks));
  const bool is_by_hand = c.check == Check::by_hand;

  // ---- Data and model ----
  c.batch_size = 6 + draw.below(5);
  c.samples = 20 + draw.below(21);
  c.valid = draw.one_in(6) ? 0 : 12 + draw.below(10);
  if (draw.one_in(4)) {
    c.net = draw.of<Net>(
        {Net::sparse,
         Net::frozen_half,
         Net::doubles,
         Net::lora,
         Net::two_parts});
  }
  c.batch_norm = draw.one_in(2);
  c.dropout = draw.one_in(2);
  c.noise = draw.one_in(5);
  c.tied = draw.one_in(6);
  c.late_layer = draw.one_in(6);
  c.frozen_by_hand = draw.one_in(8);
  c.frozen_group = draw.one_in(5);
  c.parallel = draw.one_in(12);
  c.eval_batch_norm = draw.one_in(10);

  // ---- Precision and optimizer ----
  c.numbers =
      draw.one_in(2) ? Numbers::fp32 : static_cast<Numbers>(draw.below(6));
  c.odd_scale = draw.one_in(2);
  c.optimizer = static_cast<Optim>(draw.below(14));
  c.weight_decay = draw.one_in(3) ? 0 : 1e-2;
  c.true_weight_decay = !draw.one_in(5);

  // ---- Fits ----
  c.fits.clear();
  const int64_t fits = 1 + draw.below(3);
  for (int64_t i = 0; i < fits; ++i) {
    FitCall fit;
    fit.schedule =
        draw.one_in(2) ? Schedule::flat : static_cast<Schedule>(draw.below(7));
    fit.epochs = 1 + draw.below(3);
    fit.lr = draw.of<double>({1e-3, 1e-2, 5e-2});
    if (draw.one_in(2)) fit.before = static_cast<Between>(draw.below(11));
    if (fit.before == Between::load_best && i == 0) {
      fit.before = Between::nothing;
    }
    c.fits.push_back(fit);
  }

  // ---- Callbacks ----
  const int64_t extras = draw.below(5);
  for (int64_t i = 0; i < extras; ++i) {
    const auto extra = static_cast<Extra>(
        draw.below(static_cast<int64_t>(Extra::save_checkpoint)));
    if (!has(c, extra)) c.extras.push_back(extra);
  }
  const auto add_extra = [&](Extra extra) {
    if (!has(c, extra)) c.extras.push_back(extra);
  };
  for (const FitCall& fit : c.fits) {
    if (fit.before == Between::load_best) add_extra(Extra::save_model);
  }
  if (!has(c, Extra::train_metrics) &&
      (has(c, Extra::early_stopping_metric) || has(c, Extra::plateau_metric))) {
    c.extras.insert(c.extras.begin(), Extra::train_metrics);
  }
  c.counts = draw.one_in(4);
  const int64_t acts = draw.below(3);
  for (int64_t i = 0; i < acts; ++i) {
    Act act;
    act.deed = draw.of<Deed>(
        {Deed::stop_epoch,
         Deed::stop_training,
         Deed::freeze,
         Deed::freeze_to_first,
         Deed::unfreeze,
         Deed::unfreeze,
         Deed::set_rates,
         Deed::log,
         Deed::draw});
    act.at = draw_moment(draw, c, /*anywhere=*/false);
    act.is_last = draw.one_in(3);
    if (act.deed == Deed::set_rates) add_extra(Extra::run_control);
    c.acts.push_back(act);
  }
  const auto add_act = [&](Deed deed, bool anywhere) {
    Act act;
    act.deed = deed;
    act.at = draw_moment(draw, c, anywhere);
    act.is_last = draw.one_in(3);
    act.extra = static_cast<Extra>(draw.below(kExtras));
    c.acts.push_back(act);
  };

  // ---- Settings of the check ----
  c.every_steps = draw.below(4);
  c.keep = draw.one_in(4) ? 1 : 0;
  c.way = draw.below(3);
  c.step = draw.below(1000);
  const int64_t stops = 1 + (draw.one_in(3) ? draw.below(3) : 0);
  for (int64_t i = 0; i < stops; ++i) c.stops.push_back(draw.below(1000));
  switch (c.check) {
    case Check::trial:
      c.fits[static_cast<size_t>(draw.below(fits))].before =
          static_cast<Between>(1 + draw.below(4));
      break;
    case Check::pass:
      add_act(
          static_cast<Deed>(static_cast<int>(Deed::validate) + draw.below(4)),
          /*anywhere=*/true);
      if (c.acts.back().at.event == Event::interrupt || draw.one_in(4)) {
        add_act(Deed::stop, /*anywhere=*/false);
      }
      break;
    case Check::look:
      add_act(Deed::look, /*anywhere=*/false);
      c.acts.back().at.event =
          draw.one_in(2) ? Event::backward_end : Event::step;
      break;
    case Check::exception:
      add_act(Deed::fail, /*anywhere=*/true);
      break;
    case Check::late:
      add_act(draw.one_in(2) ? Deed::add : Deed::remove, /*anywhere=*/false);
      break;
    case Check::late_freeze:
      add_act(
          draw.of<Deed>({Deed::freeze, Deed::freeze_to_first, Deed::unfreeze}),
          /*anywhere=*/true);
      break;
    case Check::resume:
      if (draw.one_in(8)) {
        add_act(draw.one_in(2) ? Deed::add : Deed::remove, /*anywhere=*/false);
      }
      break;
    case Check::diverged:
      c.extras.push_back(Extra::terminate_on_nan);
      break;
    case Check::frozen:
      c.extras.push_back(
          draw.of<Extra>({Extra::swa, Extra::ema, Extra::swa_lr}));
      break;
    case Check::ended:
      // A last batch of one sample is an error with BatchNorm.
      if (c.samples % c.batch_size == 1) ++c.samples;
      c.stream = 2 + draw.below(3 * c.samples);
      if (c.stream % c.batch_size == 1) ++c.stream;
      break;
    case Check::by_hand:
      break;
    default:
      break;
  }
  // SaveModel's last file belongs to the whole run, not to that step.
  if (c.way == 2 && has(c, Extra::save_model)) c.way = 0;
  if (is_by_hand) {
    c.net =
        draw.one_in(4) ? draw.of<Net>({Net::sparse, Net::doubles}) : Net::dense;
    c.numbers = Numbers::fp32;
    c.parallel = c.counts = false;
    c.noise = false;
    c.optimizer = draw.of<Optim>(
        {Optim::adamw,
         Optim::sgd,
         Optim::torch_sgd,
         Optim::torch_adam,
         Optim::torch_adamw,
         Optim::torch_adagrad});
    c.acts.clear();
    const std::vector<Extra> kept = {
        Extra::accumulation,
        Extra::accumulation_samples,
        Extra::clip,
        Extra::clip_value};
    c.extras.clear();
    if (draw.one_in(2)) c.extras.push_back(draw.of(kept));
    if (draw.one_in(2)) {
      const Extra other = draw.of(kept);
      if (c.extras.empty() ||
          (static_cast<int>(other) / 2 != static_cast<int>(c.extras[0]) / 2)) {
        c.extras.push_back(other);
      }
    }
    for (FitCall& fit : c.fits) {
      fit.schedule = Schedule::flat;
      if (fit.before > Between::unfreeze) fit.before = Between::nothing;
    }
  }
  return c;
}

// ---- Description ----

inline const char* to_string(Check check) {
  static constexpr const char* kNames[] = {
      "resume",
      "trial",
      "pass",
      "look",
      "by hand",
      "exception",
      "late",
      "rate zero",
      "saved",
      "branch",
      "changed",
      "round trip",
      "frozen",
      "diverged",
      "late freeze",
      "killed",
      "ended stream"};
  return kNames[static_cast<int>(check)];
}

inline const char* to_string(Extra extra) {
  static constexpr const char* kNames[] = {
      "accumulation",
      "accumulation by samples",
      "clip",
      "clip by value",
      "GradientPenalty",
      "MixUp",
      "Ema",
      "Swa",
      "Swa with lr",
      "EarlyStopping(valid_loss)",
      "EarlyStopping(train_loss)",
      "EarlyStopping(train_accuracy)",
      "ReduceLROnPlateau(valid_loss)",
      "ReduceLROnPlateau(train_accuracy)",
      "TrainMetrics",
      "StopAfterNBatches",
      "LimitBatches",
      "OverfitBatches",
      "RunControl",
      "TerminateOnNaN",
      "SaveModel",
      "CSVLogger",
      "JsonLinesLogger",
      "TensorBoard",
      "HtmlReport",
      "ActivationStats",
      "Profiler",
      "PeakMemory",
      "SyncAudit",
      "flat_cos",
      "TorchScheduler",
      "SaveCheckpoint",
      "MixedPrecision",
      "MultiOptimizer"};
  return kNames[static_cast<int>(extra)];
}

inline const char* to_string(Event event) {
  static constexpr const char* kNames[] = {
      "train_begin",
      "epoch_begin",
      "batch_begin",
      "loss_begin",
      "backward_begin",
      "backward_end",
      "step",
      "step_end",
      "batch_end",
      "epoch_end",
      "train_end",
      "eval_begin",
      "eval_end",
      "interrupt",
      "load"};
  return kNames[static_cast<int>(event)];
}

inline std::string describe(const Act& act) {
  static constexpr const char* kDeeds[] = {
      "nothing",
      "stop_epoch",
      "stop_training",
      "freeze",
      "freeze_to(1)",
      "unfreeze",
      "RunControl's lr",
      "log",
      "random numbers",
      "validate",
      "validate(train)",
      "get_preds",
      "predict",
      "gradients()",
      "request_stop",
      "throw",
      "add",
      "remove"};
  std::string deed = kDeeds[static_cast<int>(act.deed)];
  if (act.deed == Deed::add || act.deed == Deed::remove) {
    deed += fmt::format(" {}", to_string(act.extra));
  }
  return fmt::format(
      "{} in on_{} of fit {}, epoch {}, {}batch {}{}",
      deed,
      to_string(act.at.event),
      act.at.fit,
      act.at.epoch,
      act.at.in_training ? "" : "validation ",
      act.at.batch,
      act.is_last ? ", last" : "");
}

inline std::string describe(const FitCall& fit) {
  static constexpr const char* kSchedules[] = {
      "fit",
      "fit_one_cycle",
      "flat_cos",
      "sgdr",
      "StepLR",
      "StepLR by batch",
      "fine_tune"};
  static constexpr const char* kBetween[] = {
      "",
      "lr_find, ",
      "plan, ",
      "dry_run, ",
      "max_batch_size, ",
      "freeze, ",
      "unfreeze, ",
      "load_state_dict, ",
      "save and load, ",
      "validate, ",
      "load the best, "};
  return fmt::format(
      "{}{}({}, {})",
      kBetween[static_cast<int>(fit.before)],
      kSchedules[static_cast<int>(fit.schedule)],
      fit.epochs,
      fit.lr);
}

/// Returns one line with everything that differs from a plain run.
inline std::string describe(const Configuration& c) {
  static constexpr const char* kNets[] = {
      "",
      "sparse embedding",
      "frozen half part",
      "kDouble",
      "LoRA",
      "MultiOptimizer"};
  static constexpr const char* kNumbers[] = {
      "fp32",
      "to_bf16",
      "to_fp16",
      "to_fp16 with a fixed scale",
      "to_amp",
      "to_amp(half)"};
  static constexpr const char* kOptim[] = {
      "AdamW",
      "SGD",
      "Adam",
      "Lamb",
      "Larc",
      "RAdam",
      "ranger",
      "Lookahead(AdamW)",
      "AdamW 8 bit",
      "torch SGD",
      "torch Adam",
      "torch AdamW",
      "torch Adagrad",
      "torch RMSprop"};
  std::string text = fmt::format("{}:", to_string(c.check));
  const auto say = [&](const std::string& what) {
    if (!what.empty()) text += " " + what + ";";
  };
  const Configuration plain;
  for (const FitCall& fit : c.fits) say(describe(fit));
  say(kOptim[static_cast<int>(c.optimizer)]);
  if (c.numbers != Numbers::fp32) {
    say(kNumbers[static_cast<int>(c.numbers)]);
    if (c.odd_scale) {
      say(c.numbers == Numbers::bf16 ? "no master weights"
                                     : "scale by 1.3 and 0.7");
    }
  }
  say(kNets[static_cast<int>(c.net)]);
  if (c.batch_norm) say("BatchNorm");
  if (c.dropout) say("dropout");
  if (c.noise) say("noise also in evaluation");
  if (c.tied) say("tied");
  if (c.late_layer) say("late layer");
  if (c.frozen_by_hand) say("first layer frozen");
  if (c.frozen_group) say("split, freeze");
  if (c.parallel) say("to_parallel");
  if (c.eval_batch_norm) say("BatchNorm in eval mode");
  if (c.weight_decay != plain.weight_decay) {
    say(fmt::format("weight_decay {}", c.weight_decay));
  }
  if (!c.true_weight_decay) say("true_weight_decay false");
  if (c.valid == 0) say("no validation");
  for (const Extra extra : c.extras) say(to_string(extra));
  if (c.counts) say("counting callback");
  for (const Act& act : c.acts) {
    if (act.deed != Deed::nothing) say(describe(act));
  }
  const bool saves = c.check == Check::resume || c.check == Check::branch ||
                     c.check == Check::changed;
  if (saves) say(fmt::format("every_steps {}", c.every_steps));
  if (c.check == Check::look) {
    if (c.every_steps >= 2) say("accumulation by hand");
    if (c.odd_scale) say("loss times 3e-5");
  }
  if (c.stream > 0) say(fmt::format("a stream of {} samples", c.stream));
  if (c.check == Check::killed) {
    say(fmt::format("keep {}", c.keep ? 1 : 2));
  }
  if (c.check == Check::resume) {
    if (c.keep) say(fmt::format("keep {}", c.keep));
    static constexpr const char* kWays[] = {
        "stopped after {} of 1000",
        "killed after {} of 1000",
        "resumed from the step at {} of 1000"};
    std::string at;
    for (const int64_t stop : c.stops) at += fmt::format(" {}", stop);
    say(fmt::format(fmt::runtime(kWays[c.way]), at.substr(1)));
  }
  say(fmt::format("{}+{} by {}", c.samples, c.valid, c.batch_size));
  text.back() = '.';
  return text;
}

// ---- Simplifications, to find a minimal failing case ----

using Simplification = std::function<void(Configuration&)>;

/// Each one removes one thing. A failing case is reported without what it does
/// not need. A simplification that does not apply changes nothing.
inline const std::vector<Simplification>& simplifications() {
  static const std::vector<Simplification> all = [] {
    std::vector<Simplification> list;
    for (size_t i = 0; i < 8; ++i) {  // backwards: keeps indices valid
      const size_t at = 7 - i;
      list.emplace_back([at](Configuration& c) {
        if (at < c.acts.size()) c.acts[at].deed = Deed::nothing;
      });
    }
    for (int extra = 0; extra < kExtras; ++extra) {
      list.emplace_back([extra](Configuration& c) {
        std::erase(c.extras, static_cast<Extra>(extra));
      });
    }
    for (size_t at = 0; at < 3; ++at) {
      list.emplace_back([at](Configuration& c) {
        if (at < c.fits.size()) c.fits[at].before = Between::nothing;
      });
      list.emplace_back([at](Configuration& c) {
        if (at < c.fits.size()) c.fits[at].schedule = Schedule::flat;
      });
      list.emplace_back([at](Configuration& c) {
        if (at < c.fits.size()) c.fits[at].epochs = 1;
      });
    }
    for (size_t n = 1; n < 3; ++n) {
      list.emplace_back([n](Configuration& c) {
        if (c.fits.size() > n) c.fits.resize(n);
      });
    }
    list.emplace_back([](Configuration& c) { c.numbers = Numbers::fp32; });
    list.emplace_back([](Configuration& c) { c.odd_scale = false; });
    list.emplace_back([](Configuration& c) { c.optimizer = Optim::adamw; });
    list.emplace_back([](Configuration& c) { c.net = Net::dense; });
    list.emplace_back([](Configuration& c) { c.batch_norm = false; });
    list.emplace_back([](Configuration& c) { c.dropout = false; });
    list.emplace_back([](Configuration& c) { c.noise = false; });
    list.emplace_back([](Configuration& c) { c.tied = false; });
    list.emplace_back([](Configuration& c) { c.late_layer = false; });
    list.emplace_back([](Configuration& c) { c.frozen_by_hand = false; });
    list.emplace_back([](Configuration& c) { c.frozen_group = false; });
    list.emplace_back([](Configuration& c) { c.parallel = false; });
    list.emplace_back([](Configuration& c) { c.eval_batch_norm = false; });
    list.emplace_back([](Configuration& c) { c.weight_decay = 1e-2; });
    list.emplace_back([](Configuration& c) { c.true_weight_decay = true; });
    list.emplace_back([](Configuration& c) { c.counts = false; });
    list.emplace_back([](Configuration& c) { c.keep = 0; });
    list.emplace_back([](Configuration& c) { c.every_steps = 1; });
    list.emplace_back([](Configuration& c) {
      if (c.stops.size() > 1) c.stops.resize(1);
    });
    list.emplace_back([](Configuration& c) {
      if (c.valid == 0) c.valid = 16;
    });
    return list;
  }();
  return all;
}

}  // namespace tern::combos
