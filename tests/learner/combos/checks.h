#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <c10/util/ScopeExit.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/tests/learner/combos/training.h"
#include "tern/tests/support/temp_folder.h"

/// Checks of a random run against a reference.
namespace tern::combos {

/// Tern rejects this Configuration with a readable message.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Tern has a fault.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns whether this is Tern's own message, without LibTorch's internals.
inline bool is_sentence(const std::exception& error) {
  const std::string message = message_of(error);
  for (const char* word :
       {"INTERNAL ASSERT",
        "aten::",
        "Could not run",
        "must match",
        "inplace operation",
        "Expected ",
        "expected scalar type",
        "does not require grad"}) {
    if (message.find(word) != std::string::npos) return false;
  }
  // These messages of LibTorch are clear enough.
  if (message.find("support sparse gradients") != std::string::npos ||
      message.find("compatible with sparse gradients") != std::string::npos) {
    return true;
  }
  const bool is_of_a_file = dynamic_cast<const DataError*>(&error) != nullptr;
  return (message.find('[') != std::string::npos || is_of_a_file) &&
         message.size() < 1500;
}

/// A part of the undisturbed program. If Tern rejects it, the case is not run.
template <class F>
void undisturbed(const F& part) {
  try {
    part();
  } catch (const Misjudged& error) {
    throw Failed(error.what());
  } catch (const std::exception& error) {
    const std::string message = message_of(error);
    if (is_sentence(error)) throw Refused(message);
    throw Failed("the undisturbed program throws: " + message);
  }
}

/// A part that must work if the undisturbed program works.
template <class F>
void disturbed(const char* what, const F& part) {
  try {
    part();
  } catch (const Refused&) {
    throw;
  } catch (const Failed&) {
    throw;
  } catch (const std::exception& error) {
    throw Failed(std::string(what) + " throws: " + message_of(error));
  }
}

// ---- The final state of a run ----

/// The content of a checkpoint, the model's own tensors and their
/// requires_grad.
inline StateDict end_of(Learner& learn) {
  const torch::NoGradGuard no_grad;
  learn.state().result = FitResult::completed;
  StateDict end;
  for (const ModelTensor& t : learn.model().state()) {
    end.insert("raw/" + t.name, t.tensor.detach().clone());
  }
  for (const ModelTensor& t : learn.model().parameters()) {
    end.insert("trains/" + t.name, torch::tensor(t.tensor.requires_grad()));
  }
  // A checkpoint stores one set of metric names; these are per epoch.
  for (const EpochRecord& epoch : learn.recorder().epochs()) {
    for (const MetricValue& metric : epoch.metrics) {
      if (metric.name == "peak_mib") continue;
      end.insert(
          fmt::format("epoch {}/{}", epoch.epoch, metric.name),
          torch::scalar_tensor(1));
    }
  }
  Checkpoint checkpoint;
  try {
    checkpoint = capture_checkpoint(learn);
  } catch (
      const c10::NotImplementedError&) {  // this optimizer has no state dict
    return end;
  }
  const auto add = [&](const std::string& under, const StateDict& state) {
    for (const auto& entry : state) {
      const std::string name = under + entry.key();
      // Skip wall-clock times, memory use, and positions in log files.
      if (name.ends_with("/seconds") || name.ends_with("peak_mib")) continue;
      if (name.starts_with("training/logs/")) continue;
      // Callbacks without state may be added or removed between fits.
      if (name.starts_with("training/empty/")) continue;
      end.insert(name, entry.value());
    }
  };
  add("model/", checkpoint.model);
  add("optimizer/", checkpoint.optimizer);
  add("training/", checkpoint.training);
  return end;
}

inline bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  if (a.is_sparse() || b.is_sparse()) {  // a momentum buffer
    return a.is_sparse() && b.is_sparse() &&
           torch::equal(a.to_dense(), b.to_dense());
  }
  const torch::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  return x.numel() == 0 ||
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// " (by 1e-09)", which distinguishes rounding from a different run.
inline std::string distance(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes() || a.numel() == 0) return "";
  const torch::Tensor by =
      (a.cpu().to(torch::kDouble) - b.cpu().to(torch::kDouble)).abs().max();
  return fmt::format(" (by {:.0e})", by.item<double>());
}

/// Names the tensors that differ; empty if none does.
/// \param leaves_out  Prefixes of names to skip.
inline std::string difference(
    const StateDict& actual,
    const StateDict& expected,
    const std::vector<std::string>& leaves_out = {}) {
  std::vector<std::string> names;
  const auto counts = [&](const std::string& name) {
    return std::none_of(
        leaves_out.begin(),
        leaves_out.end(),
        [&](const std::string& out) { return name.starts_with(out); });
  };
  for (const auto& entry : expected) {
    if (!counts(entry.key())) continue;
    const torch::Tensor* const other = actual.find(entry.key());
    if (!other) {
      names.push_back(entry.key() + " is missing");
    } else if (!same_bytes(*other, entry.value())) {
      names.push_back(entry.key() + distance(*other, entry.value()));
    }
  }
  for (const auto& entry : actual) {
    if (counts(entry.key()) && !expected.contains(entry.key())) {
      names.push_back(entry.key() + " is new");
    }
  }
  if (names.empty()) return "";
  std::string text;
  for (size_t i = 0; i < names.size() && i < 4; ++i) {
    text += (i ? ", " : "") + names[i];
  }
  if (names.size() > 4) text += fmt::format(", {} more", names.size() - 4);
  return text;
}

inline void expect_same(
    const char* what,
    const StateDict& actual,
    const StateDict& expected,
    const std::vector<std::string>& leaves_out = {}) {
  const std::string names = difference(actual, expected, leaves_out);
  if (!names.empty()) throw Failed(std::string(what) + " differs in " + names);
}

inline void expect(bool is_so, const std::string& what) {
  if (!is_so) throw Failed(what);
}

// The recorder's list of calls includes dry runs.
inline const std::vector<std::string> kCalls = {
    "training/callbacks/Recorder 0/fit_"};

// The rows of a CSV file without their last column, the seconds.
inline std::string rows_of(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return "";
  const std::vector<uint8_t> bytes = read_file(file);
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  std::string line, rows;
  while (std::getline(lines, line)) {
    rows += line.substr(0, line.rfind(',')) + "\n";
  }
  return rows;
}

inline CallbackHandle saves(const Configuration& c, int64_t every_steps) {
  return std::make_shared<SaveCheckpoint>(SaveCheckpoint::Options{
      .folder = "run",
      .every_steps = every_steps,
      .keep = c.keep,
      .durable = false});
}

// ---- Stopping and restarting ----

/// Starts a program that may be stopped.
/// \return whether it ran to its end.
inline bool comes_to_its_end(
    Start& start,
    const Configuration& c,
    const std::filesystem::path& folder,
    const std::vector<CallbackHandle>& more,
    const std::filesystem::path& resumes = "run") {
  set_up(start, c, folder, more);
  try {
    start.learn->resume(resumes, {.if_exists = true});
    run_program(start, c);
  } catch (const Killed&) {
    return false;
  } catch (const std::exception& error) {
    const std::string message = message_of(error);
    const bool is_stopped =
        start.learn->state().result == FitResult::interrupted;
    if (is_stopped && message.find("stop was requested") != std::string::npos) {
      return false;
    }
    // With other callbacks it is a different run, which resume rejects.
    const bool changes_callbacks =
        std::any_of(c.acts.begin(), c.acts.end(), [](const Act& act) {
          return act.deed == Deed::add || act.deed == Deed::remove;
        });
    if (changes_callbacks && dynamic_cast<const CheckpointError*>(&error)) {
      throw Refused(message);
    }
    throw Failed(fmt::format(
        "{} throws: {}",
        is_stopped ? "a stop" : "a start",
        message));
  }
  return start.learn->state().result != FitResult::interrupted;
}

inline void check_resume(const Configuration& c) {
  const TempFolder undisturbed_folder, folder;
  Start whole;
  undisturbed([&] {
    set_up(
        whole,
        c,
        undisturbed_folder.path(),
        {saves(
            c,
            c.way == 2 ? std::max<int64_t>(1, c.every_steps) : c.every_steps)});
    run_program(whole, c);
  });
  const StateDict expected = end_of(*whole.learn);
  const int64_t ticks = whole.ticks;
  const std::string rows = rows_of(undisturbed_folder / "history.csv");
  whole.learn.reset();
  Start last;
  if (c.way == 2) {
    auto steps = list_checkpoints(undisturbed_folder / "run");
    if (steps.empty()) return;
    std::reverse(steps.begin(), steps.end());
    const auto step =
        steps[static_cast<size_t>(c.stops[0] * std::ssize(steps) / 1000)];
    std::filesystem::create_directories(folder / "run");
    std::filesystem::copy(
        undisturbed_folder / "run" / step.filename(),
        folder / "run" / step.filename(),
        std::filesystem::copy_options::recursive);
    expect(
        comes_to_its_end(last, c, folder.path(), {saves(c, c.every_steps)}),
        "the run stopped without a stop request");
  } else {
    for (const int64_t at : c.stops) {
      Start stopped;
      stopped.stop_at = at * ticks / 1000;
      stopped.stop_kills = c.way == 1;
      comes_to_its_end(stopped, c, folder.path(), {saves(c, c.every_steps)});
    }
    expect(
        comes_to_its_end(last, c, folder.path(), {saves(c, c.every_steps)}),
        "the run stopped without a stop request");
    if (has(c, Extra::csv) && !has(c, Extra::peak_memory)) {
      expect(
          rows_of(folder / "history.csv") == rows,
          "CSVLogger wrote different rows:\n" +
              rows_of(folder / "history.csv") + "instead of\n" + rows);
    }
  }
  expect_same("the resumed run", end_of(*last.learn), expected);
}

// ---- What must not change the result ----

inline void check_trial(const Configuration& c) {
  const TempFolder folder, other;
  Start without, with;
  without.makes_trials = false;
  undisturbed([&] {
    set_up(without, c, folder.path());
    run_program(without, c);
  });
  const StateDict expected = end_of(*without.learn);
  // A dry run may be rejected where the fits are not.
  undisturbed([&] {
    set_up(with, c, other.path());
    run_program(with, c);
  });
  expect_same("the run with dry runs", end_of(*with.learn), expected, kCalls);
}

// Compares an evaluation within a fit with one outside, with the same weights.
inline void check_result(const PassResult& pass, const Configuration& c) {
  const auto rows = [&](const torch::Tensor& t) {
    return t.defined() ? t.size(0) : 0;
  };
  const bool limits = has(c, Extra::limit) || has(c, Extra::overfit);
  if (pass.deed == Deed::get_preds && !limits) {
    expect(
        rows(pass.preds) == c.samples,
        fmt::format(
            "get_preds has {} rows of {}",
            rows(pass.preds),
            c.samples));
  }
  if (pass.deed == Deed::validate || pass.deed == Deed::validate_train) {
    expect(pass.metrics.size() == 1, "validate has no metric");
  }
  const bool averages =
      has(c, Extra::ema) || has(c, Extra::swa) || has(c, Extra::swa_lr);
  if (limits || averages || c.noise) return;
  Configuration plain = c;
  plain.acts.clear();
  plain.extras.clear();
  plain.counts = false;
  const TempFolder folder;
  Start outside;
  set_up(outside, plain, folder.path());
  Learner& learn = *outside.learn;
  learn.load_state_dict(pass.weights);
  outside.net->uses_late = pass.uses_late;
  torch::Tensor preds;
  Validation result;
  switch (pass.deed) {
    case Deed::validate:
      result = learn.validate();
      break;
    case Deed::validate_train:
      result = learn.validate(Split::train);
      break;
    case Deed::get_preds:
      preds = learn.get_preds(Split::train).preds;
      break;
    default:
      preds =
          learn
              .predict(
                  {learn.data().train->dataset().get_batch({0}, {}).inputs[0]
                                                                          [0]})
              .probabilities;
  }
  if (preds.defined()) {
    expect(
        same_bytes(pass.preds, preds),
        "the evaluation in the fit gave different predictions");
    return;
  }
  const auto same = [](double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
  };
  expect(
      same(pass.loss, result.loss),
      fmt::format(
          "validate gave the loss {} instead of {}",
          pass.loss,
          result.loss));
  expect(
      pass.metrics.at(0) == result["accuracy"],
      fmt::format(
          "validate gave the accuracy {} instead of {}",
          pass.metrics[0],
          result["accuracy"]));
}

inline void check_pass(const Configuration& c) {
  const TempFolder folder, other;
  Start without, with;
  without.leaves_out = {
      Deed::validate,
      Deed::validate_train,
      Deed::get_preds,
      Deed::predict};
  undisturbed([&] {
    set_up(without, c, folder.path());
    run_program(without, c);
  });
  const StateDict expected = end_of(*without.learn);
  disturbed("the run with an evaluation", [&] {
    set_up(with, c, other.path());
    run_program(with, c);
  });
  expect_same("the run with an evaluation", end_of(*with.learn), expected);
  for (const PassResult& pass : with.passes) check_result(pass, c);
}

// Accumulates gradients by hand if `every_steps` is at least 2, and reads them
// if `looks`.
inline CallbackHandle by_hand(const Configuration& c, bool looks) {
  const bool accumulates = c.every_steps >= 2;
  const double factor = c.odd_scale ? 3e-5 : 1;
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_backward_begin =
          [factor](Learner& l) {
            if (factor == 1) return;
            l.state().loss_grad = l.state().loss_grad * factor;
          },
      .on_backward_end =
          [accumulates, looks](Learner& l) {
            if (accumulates && l.state().batch % 2 == 0) {
              l.state().skip_step = l.state().skip_zero_grad = true;
            }
            if (looks) l.gradients();
          },
      .order = callback_order::kMixedPrecision - 1});
}

inline void check_look(const Configuration& c) {
  const TempFolder folder, other;
  Start without, with;
  without.leaves_out = {Deed::look};
  undisturbed([&] {
    set_up(without, c, folder.path(), {by_hand(c, /*looks=*/false)});
    run_program(without, c);
  });
  const StateDict expected = end_of(*without.learn);
  disturbed("the run that reads gradients", [&] {
    set_up(with, c, other.path(), {by_hand(c, /*looks=*/true)});
    run_program(with, c);
  });
  expect_same("the run that reads gradients", end_of(*with.learn), expected);
}

// ---- A loop in plain LibTorch ----

struct HandLoop {
  const Configuration& c;
  std::shared_ptr<NetImpl> net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  int64_t epochs = 0;

  // Each parameter once, including tied ones.
  Tensors parameters() const {
    Tensors params;
    for (const ModelTensor& p : Model(net).parameters()) {
      params.push_back(p.tensor);
    }
    return params;
  }

  void make_optimizer(double rate) {
    const Tensors params = parameters();
    using namespace torch::optim;  // NOLINT: in a test
    const double own = c.true_weight_decay ? 0 : c.weight_decay;
    switch (c.optimizer) {
      case Optim::sgd:
      case Optim::torch_sgd:
        optimizer = std::make_unique<SGD>(
            params,
            SGDOptions(rate).momentum(0.9).weight_decay(own));
        break;
      case Optim::torch_adam:
        optimizer =
            std::make_unique<Adam>(params, AdamOptions(rate).weight_decay(own));
        break;
      case Optim::adamw:  // Adam without decoupled weight decay
        if (c.true_weight_decay) {
          optimizer = std::make_unique<AdamW>(
              params,
              AdamWOptions(rate).betas({0.9, 0.99}).weight_decay(own));
        } else {
          optimizer = std::make_unique<Adam>(
              params,
              AdamOptions(rate).betas({0.9, 0.99}).weight_decay(own));
        }
        break;
      case Optim::torch_adagrad:
        optimizer = std::make_unique<Adagrad>(
            params,
            AdagradOptions(rate).weight_decay(own));
        break;
      default:
        optimizer = std::make_unique<AdamW>(
            params,
            AdamWOptions(rate).weight_decay(own));
    }
  }

  void step(double rate) {
    if (has(c, Extra::clip)) {
      torch::nn::utils::clip_grad_norm_(parameters(), 0.1);
    }
    if (has(c, Extra::clip_value)) {
      torch::nn::utils::clip_grad_value_(parameters(), 0.05);
    }
    if (c.true_weight_decay) {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& p : parameters()) {
        if (p.grad().defined()) p.mul_(1 - rate * c.weight_decay);
      }
    }
    optimizer->step();
    optimizer->zero_grad();
  }

  void fit(const DataBunch& data, const FitCall& call) {
    for (auto& group : optimizer->param_groups()) {
      group.options().set_lr(call.lr);
    }
    for (int64_t epoch = 0; epoch < call.epochs; ++epoch) {
      net->train(true);
      net->uses_late = epoch >= 1;
      std::vector<Batch> batches;
      auto pass = data.train->epoch(epochs++);
      while (auto batch = pass.next()) batches.push_back(batch->to(device()));
      for (size_t begin = 0; begin < batches.size();) {
        size_t end = begin;
        int64_t samples = 0;
        const int64_t most = has(c, Extra::accumulation_samples) ? 15 : 0;
        const size_t count = has(c, Extra::accumulation) ? 2 : 1;
        do {
          samples += batches[end++].size();
        } while (end < batches.size() &&
                 (most ? samples < most : end - begin < count));
        for (; begin < end; ++begin) {
          const Batch& batch = batches[begin];
          const torch::Tensor loss = torch::nn::functional::cross_entropy(
              net->forward(batch.inputs[0]),
              batch.targets[0]);
          (loss *
           (static_cast<double>(batch.size()) / static_cast<double>(samples)))
              .backward();
        }
        step(call.lr);
      }
    }
  }
};

inline void check_by_hand(const Configuration& c) {
  const TempFolder folder;
  Start start;
  undisturbed([&] {
    set_up(start, c, folder.path());
    run_program(start, c);
  });
  torch::manual_seed(7);
  HandLoop loop{c, std::make_shared<NetImpl>(c), nullptr};
  loop.net->to(device());
  torch::manual_seed(11);
  const DataBunch data = make_data(c);
  const auto freeze = [&](bool on) {
    for (const auto& p : loop.net->named_parameters()) {
      // The norm layers of a frozen group are still trained.
      const bool learns =
          p.key().starts_with("head") || p.key().starts_with("norm");
      if (learns) continue;
      // A net with a sparse embedding has no layer `first`, and set_up then
      // froze nothing by hand.
      const bool is_by_hand =
          c.frozen_by_hand && loop.net->first && p.key().starts_with("first");
      p.value().requires_grad_(!on && !is_by_hand);
      // freeze and unfreeze clear the optimizer's state.
      p.value().mutable_grad().reset();
    }
    loop.optimizer.reset();
  };
  if (c.frozen_group) freeze(true);
  for (const FitCall& call : c.fits) {
    if (call.before == Between::freeze) freeze(true);
    if (call.before == Between::unfreeze) freeze(false);
    if (!loop.optimizer) loop.make_optimizer(call.lr);
    loop.fit(data, call);
  }
  for (const auto& entry : loop.net->named_parameters()) {
    // Before a BatchNorm, the gradient of this bias is only rounding error.
    if (c.batch_norm && entry.key() == "first.bias") continue;
    const torch::Tensor actual = start.learn->state_dict()[entry.key()].cpu();
    const double error = (actual - entry.value()).abs().max().item<double>();
    const double size = entry.value().abs().max().item<double>();
    expect(
        error <= 2e-4 * (size + 1e-2),
        fmt::format(
            "{} is off by {} from LibTorch's loop",
            entry.key(),
            error));
  }
}

// ---- Exceptions ----

inline std::string parameter_bytes(Learner& learn) {
  std::string bytes;
  for (const ModelTensor& t : learn.model().parameters()) {
    const torch::Tensor tensor = t.tensor.detach().cpu().contiguous();
    bytes.append(
        static_cast<const char*>(tensor.const_data_ptr()),
        tensor.nbytes());
  }
  return bytes;
}

inline std::vector<bool> trained(Learner& learn) {
  std::vector<bool> flags;
  for (const ModelTensor& t : learn.model().parameters()) {
    flags.push_back(t.tensor.requires_grad());
  }
  return flags;
}

/// Checks that a Learner can be used after its fit has ended.
inline void expect_usable(Learner& learn, const Configuration& c) {
  expect(!learn.state().is_fitting, "is_fitting is still true");
  expect(!learn.state().training, "training is still true");
  expect(learn.state().scaler == nullptr, "the scaler is still set");
  const int64_t batches = (c.samples + c.batch_size - 1) / c.batch_size;
  const auto& options = learn.data().train->options();
  expect(
      learn.data().train->size() ==
          (options.drop_last ? c.samples / c.batch_size : batches),
      fmt::format(
          "the training loader has {} batches of {}",
          learn.data().train->size(),
          batches));
  for (const ModelTensor& t : learn.model().parameters()) {
    expect(!t.tensor.grad().defined(), t.name + " still has a gradient");
  }
}

inline void check_exception(const Configuration& c) {
  const TempFolder folder, other;
  std::set<std::string> complete;
  Start whole;
  whole.leaves_out = {Deed::fail};
  whole.watch = [&](Learner& l, Event event) {
    const bool is_step = event == Event::batch_end && l.state().training;
    if (is_step || event == Event::train_begin) {
      complete.insert(parameter_bytes(l));
    }
  };
  undisturbed([&] {
    set_up(whole, c, folder.path());
    complete.insert(parameter_bytes(*whole.learn));
    run_program(whole, c);
  });
  complete.insert(parameter_bytes(*whole.learn));
  Start start;
  set_up(start, c, other.path());
  Learner& learn = *start.learn;
  const size_t callbacks = learn.callbacks().size();
  bool has_thrown = false;
  try {
    run_program(start, c);
  } catch (const Thrown&) {
    has_thrown = true;
  } catch (const std::exception& error) {
    throw Failed("a different exception was thrown: " + message_of(error));
  }
  if (!has_thrown) return;
  expect_usable(learn, c);
  expect(
      learn.callbacks().size() == callbacks,
      "the fit's own callbacks are still there");
  const bool averages = has(c, Extra::ema) || has(c, Extra::swa) ||
                        has(c, Extra::swa_lr) || has(c, Extra::save_model);
  if (!averages) {
    expect(
        complete.contains(parameter_bytes(learn)),
        "the weights are not those of a complete step");
  }
  const int64_t done = learn.state().iteration;
  disturbed("a fit after the exception", [&] {
    start.leaves_out = {Deed::fail};
    learn.fit(1, 1e-3);
  });
  // A fit that ends before its first batch has no step.
  const bool is_ended = std::ranges::any_of(c.acts, [](const Act& act) {
    return act.deed == Deed::stop_training &&
           act.at.event == Event::epoch_begin && act.at.epoch == 0;
  });
  expect(
      learn.state().result == FitResult::completed &&
          (is_ended || learn.state().iteration > done),
      "the fit after the exception did not train");
}

// ---- Adding and removing callbacks during a fit ----

inline void check_late(const Configuration& drawn) {
  Configuration c = drawn;
  // Only the last action is checked.
  Act& act = c.acts.back();
  if (act.deed == Deed::nothing) return;
  const bool adds = act.deed == Deed::add;
  // It sets a learning rate when the fit begins, which then remains.
  if (!adds && act.extra == Extra::torch_scheduler) return;
  // Removing removes all callbacks of the class.
  const CallbackHandle its = make_extra(act.extra);
  const Callback& like = *its;
  std::erase_if(c.extras, [&](Extra extra) {
    const CallbackHandle other = make_extra(extra);
    const Callback& one = *other;
    return typeid(one) == typeid(like);
  });
  Configuration from_the_start = c;
  // A net of two parts has a MultiOptimizer anyway.
  if (act.extra != Extra::multi_optimizer) {
    (adds ? from_the_start : c).extras.push_back(act.extra);
  }
  const TempFolder folder, other;
  Start plain, late;
  plain.leaves_out = {act.deed};
  undisturbed([&] {
    set_up(plain, from_the_start, folder.path());
    run_program(plain, from_the_start);
  });
  const StateDict expected = end_of(*plain.learn);
  undisturbed([&] { set_up(late, c, other.path()); });
  const size_t callbacks = late.learn->callbacks().size();
  bool is_refused = false;
  std::string refusal;
  try {
    run_program(late, c);
  } catch (const std::exception& error) {
    refusal = message_of(error);
    is_refused = true;
    expect(is_sentence(error), "adding or removing a callback: " + refusal);
  }
  Learner& learn = *late.learn;
  expect_usable(learn, c);
  // The fit itself rejects a callback that has not been removed yet.
  if (late.deeds == 0 && is_refused) throw Refused(refusal);
  if (late.deeds == 1 && is_refused) {
    expect(
        learn.callbacks().size() == callbacks,
        "it is rejected, but done: " + refusal);
    late.leaves_out = {Deed::add, Deed::remove};
    undisturbed([&] { learn.fit(1, 1e-3); });
    throw Refused(refusal);
  }
  // fine_tune's second fit adds the callback again, which some reject.
  if (is_refused && adds) {
    late.leaves_out = {Deed::add, Deed::remove};
    undisturbed([&] { learn.fit(1, 1e-3); });
    throw Refused(refusal);
  }
  // Before the first batch, adding it has the same effect as before the fit.
  // fine_tune's second fit adds it a second time, which may have an effect: two
  // GradientClips round twice.
  const bool is_first =
      late.deeds == 1 && act.extra != Extra::multi_optimizer &&
      act.at.fit == 0 && act.at.epoch == 0 &&
      act.at.event == Event::epoch_begin && c.acts.size() == 1;
  if (is_first) {
    const std::vector<std::string> others = {"training/"};
    expect_same(
        adds ? "a callback added in the first on_epoch_begin"
             : "without the callback removed in the first on_epoch_begin it",
        end_of(learn),
        expected,
        others);
  }
  late.leaves_out = {Deed::add, Deed::remove};
  undisturbed([&] { learn.fit(1, 1e-3); });
}

// ---- Other guarantees ----

inline void check_rate_zero(const Configuration& c) {
  const TempFolder folder;
  Start start;
  undisturbed([&] {
    set_up(start, c, folder.path());
    run_program(start, c);
  });
  Learner& learn = *start.learn;
  for (const Extra extra : c.extras) {
    const CallbackHandle like = make_extra(extra);
    const Callback& kind = *like;
    for (const auto& callback : Callbacks(learn.callbacks())) {
      const Callback& one = *callback;
      if (typeid(one) == typeid(kind)) learn.remove(one);
    }
  }
  // Lookahead moves weights towards its slow weights, unless both are replaced.
  const bool looks_ahead =
      c.optimizer == Optim::ranger || c.optimizer == Optim::lookahead;
  if (c.seed % 2 == 0 || looks_ahead) {
    learn.load_state_dict(shifted(learn.state_dict(), 0.5));
  }
  const StateDict before = copy_of(learn.state_dict());
  start.fit = -1;
  disturbed("a fit at rate 0", [&] { learn.fit(1, 0.0); });
  for (const ModelTensor& t : learn.model().parameters()) {
    expect(
        same_bytes(learn.state_dict()[t.name], before[t.name]),
        t.name + " moved at rate 0");
  }
}

inline void check_saved(const Configuration& c) {
  const TempFolder folder;
  Start start, again;
  undisturbed([&] {
    set_up(start, c, folder.path());
    run_program(start, c);
  });
  Learner& learn = *start.learn;
  disturbed("save_checkpoint", [&] {
    learn.save_checkpoint("kept");
    learn.load_state_dict(shifted(learn.state_dict(), 0.5));
    learn.save_checkpoint("kept");
  });
  const StateDict expected = copy_of(learn.state_dict());
  const auto has_late_change =
      std::any_of(c.acts.begin(), c.acts.end(), [](const Act& act) {
        return act.deed == Deed::freeze || act.deed == Deed::freeze_to_first ||
               act.deed == Deed::unfreeze;
      });
  if (has_late_change) return;
  set_up(again, c, folder.path());
  disturbed("resume", [&] { again.learn->resume("kept"); });
  expect_same("the last checkpoint", again.learn->state_dict(), expected);
}

// Returns the entries of a run's folder other than checkpoints.
inline std::set<std::string> other_entries(const std::filesystem::path& run) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    const bool is_step =
        name.starts_with("step_") &&
        name.find_first_not_of("0123456789", 5) == std::string::npos;
    // "step_3.replaced-2" without its number.
    if (!is_step) names.insert(name.substr(0, name.find('-')));
  }
  return names;
}

// A custom loss without state, so checkpoints do not record it.
inline CallbackHandle other_loss() {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_backward_begin = [](Learner& l) {
        l.state().loss_grad = l.state().loss_grad * 1.5;
      }});
}

inline void check_branch(const Configuration& c) {
  if (has(c, Extra::save_model)) return;
  const TempFolder folder, other;
  const int64_t every = std::max<int64_t>(1, c.every_steps);
  Start whole, reference, stopped, last;
  undisturbed([&] {
    set_up(whole, c, folder.path(), {saves(c, every)});
    run_program(whole, c);
  });
  const int64_t ticks = whole.ticks;
  whole.learn.reset();
  auto steps = list_checkpoints(folder / "run");
  if (steps.empty()) return;
  std::reverse(steps.begin(), steps.end());
  const std::string step =
      steps[static_cast<size_t>(c.step * std::ssize(steps) / 1000)]
          .filename()
          .string();
  std::filesystem::create_directories(other / "run");
  std::filesystem::copy(
      folder / "run" / step,
      other / "run" / step,
      std::filesystem::copy_options::recursive);
  const std::filesystem::path from = std::filesystem::path("run") / step;
  const auto more = [&] {
    return std::vector<CallbackHandle>{saves(c, every), other_loss()};
  };
  comes_to_its_end(reference, c, other.path(), more(), from);
  const StateDict expected = end_of(*reference.learn);
  stopped.stop_at = c.stops[0] * ticks / 1000;
  const auto before = other_entries(folder / "run");
  comes_to_its_end(stopped, c, folder.path(), more(), from);
  // Complete, or stopped in a dry run such as lr_find, which saves nothing.
  const bool saved_nothing =
      stopped.learn->state().result == FitResult::completed ||
      other_entries(folder / "run") == before;
  stopped.learn.reset();
  if (saved_nothing) return;
  comes_to_its_end(last, c, folder.path(), more());
  expect_same(
      "the run that resumed from an earlier step and was stopped again",
      end_of(*last.learn),
      expected);
}

inline void check_changed(const Configuration& drawn) {
  Configuration c = drawn;
  c.acts.clear();
  c.fits.resize(1);
  c.fits[0] = {.epochs = 2, .lr = drawn.fits[0].lr};
  std::erase_if(c.extras, [](Extra extra) {
    return extra == Extra::swa_lr || extra == Extra::plateau ||
           extra == Extra::plateau_metric || extra == Extra::stop_after ||
           extra == Extra::early_stopping || extra == Extra::overfit ||
           extra == Extra::early_stopping_train || extra == Extra::flat_cos ||
           extra == Extra::torch_scheduler ||
           // Its file contains the optimizer's weight decay.
           extra == Extra::save_model || extra == Extra::early_stopping_metric;
  });
  const TempFolder folder;
  Start whole;
  undisturbed([&] {
    set_up(whole, c, folder.path(), {saves(c, 1)});
    run_program(whole, c);
  });
  const int64_t total = whole.learn->state().iteration;
  whole.learn.reset();
  auto steps = list_checkpoints(folder / "run");
  // Exclude the last one, which is complete.
  std::erase_if(steps, [&](const auto& step) {
    return step.filename() == fmt::format("step_{}", total);
  });
  if (steps.empty()) return;
  const auto step =
      std::filesystem::path("run") /
      steps[static_cast<size_t>(c.step) % steps.size()].filename();
  Configuration other = c;
  const bool changes_decay = c.seed % 2 == 0;
  if (changes_decay) {
    other.weight_decay = 0.5;
  } else {
    other.fits[0].lr = c.fits[0].lr / 2;
  }
  Start refused, allowed;
  set_up(refused, other, folder.path());
  bool is_refused = false;
  try {
    refused.learn->resume(step);
    run_program(refused, other);
  } catch (const CheckpointError&) {
    is_refused = true;
  }
  expect(
      is_refused,
      changes_decay ? "resume accepts a different weight decay silently"
                    : "resume accepts a different learning rate silently");
  set_up(allowed, other, folder.path());
  disturbed("a resume with allow_change", [&] {
    allowed.learn->resume(step, {.allow_change = true});
    run_program(allowed, other);
  });
  if (changes_decay) {
    const double decay = optim::weight_decay(
        allowed.learn->optimizer().param_groups()[0].options());
    expect(decay == 0.5, fmt::format("the weight decay is {}, not 0.5", decay));
  } else {
    const double rate = allowed.learn->recorder().learning_rates().back();
    expect(
        rate == other.fits[0].lr,
        fmt::format("the rate is {}, not {}", rate, other.fits[0].lr));
  }
}

inline void check_round_trip(const Configuration& drawn) {
  Configuration c = drawn;
  c.numbers = Numbers::fp32;
  const TempFolder folder;
  Start start;
  undisturbed([&] { set_up(start, c, folder.path()); });
  Learner& learn = *start.learn;
  const StateDict before = copy_of(learn.state_dict());
  const bool has_other_weights = std::ranges::any_of(
      c.fits,
      [](const auto& fit) { return fit.before == Between::put_weights_in; });
  const bool is_half = c.seed % 2 == 0;
  const bool trains = c.seed % 3 == 0 && !has_other_weights;
  undisturbed(
      [&] { is_half ? learn.to_fp16({.force_fp16 = true}) : learn.to_bf16(); });
  const auto look = [&](const char* when, bool has_trained) {
    for (const auto& entry : before) {
      const bool is_constant = entry.key() == "position" ||
                               entry.key() == "large" || entry.key() == "steps";
      if (has_trained && !is_constant) continue;
      // Master weights are fp32.
      const auto exact = [](const torch::Tensor& t) {
        return t.is_floating_point() ? t.to(torch::kFloat) : t;
      };
      expect(
          same_bytes(
              exact(learn.state_dict()[entry.key()]),
              exact(entry.value())),
          fmt::format("{} has changed {}", entry.key(), when));
    }
  };
  look("in 16 bits", false);
  if (trains) undisturbed([&] { run_program(start, c); });
  learn.to_fp32();
  look("after 16 bits", trains);
}

inline void check_frozen(const Configuration& drawn) {
  Configuration c = drawn;
  std::erase_if(c.acts, [](const Act& act) {
    return act.deed == Deed::unfreeze || act.deed == Deed::freeze_to_first;
  });
  for (FitCall& fit : c.fits) {
    const bool moves = fit.before == Between::unfreeze ||
                       fit.before == Between::put_weights_in ||
                       fit.before == Between::load_best ||
                       fit.before == Between::save_and_load;
    if (moves) fit.before = Between::nothing;
    if (fit.schedule == Schedule::fine_tune) fit.schedule = Schedule::flat;
  }
  const TempFolder folder;
  Start start;
  undisturbed([&] { set_up(start, c, folder.path()); });
  const bool keeps_statistics = c.eval_batch_norm || c.net == Net::lora;
  const auto frozen = [&] {
    StateDict state;
    for (const auto& p : start.net->named_parameters()) {
      if (p.value().requires_grad()) continue;
      state.insert(p.key(), p.value().detach().to(torch::kFloat, false, true));
    }
    for (const auto& b : start.net->named_buffers()) {
      if (!b.key().starts_with("norm.") || !keeps_statistics) continue;
      if (!b.value().is_floating_point()) continue;
      state.insert(b.key(), b.value().detach().clone());
    }
    return state;
  };
  const StateDict before = frozen();
  undisturbed([&] { run_program(start, c); });
  const StateDict after = frozen();
  const bool rounds = c.numbers == Numbers::bf16 ||
                      c.numbers == Numbers::fp16 ||
                      c.numbers == Numbers::fp16_fixed;
  for (const auto& entry : before) {
    if (rounds && !entry.key().starts_with("norm.running")) continue;
    const torch::Tensor* const now = after.find(entry.key());
    expect(
        now && same_bytes(*now, entry.value()),
        entry.key() + " is frozen, but has changed");
  }
  std::set<std::string> names;
  for (const ModelTensor& t : start.learn->model().state()) {
    names.insert(t.name);
  }
  for (const auto& callback : start.learn->callbacks()) {
    for (const auto& entry : callback->state_dict()) {
      const std::string prefix = "average.";
      if (!entry.key().starts_with(prefix)) continue;
      const std::string name = entry.key().substr(prefix.size());
      expect(
          names.contains(name),
          "it averages " + name + ", which is not in the model");
    }
  }
}

inline void check_diverged(const Configuration& c) {
  // On a GPU, TerminateOnNaN reads the loss some steps later.
  if (!device().is_cpu()) return;
  const TempFolder folder;
  Start start;
  undisturbed([&] {
    set_up(start, c, folder.path());
    run_program(start, c);
  });
  for (const ModelTensor& t : start.learn->model().parameters()) {
    expect(
        t.tensor.isfinite().all().item<bool>(),
        t.name + " is not finite despite TerminateOnNaN");
  }
}

inline void check_late_freeze(const Configuration& drawn) {
  Configuration c = drawn;
  const Act act = c.acts.back();
  c.acts = {act};
  c.acts[0].at.fit = 0;
  c.fits.resize(1);
  if (c.fits[0].schedule == Schedule::fine_tune) {
    c.fits[0].schedule = Schedule::flat;
  }
  const Between before = c.fits[0].before;
  if (is_trial(before)) c.fits[0].before = Between::nothing;
  const TempFolder folder, other;
  Start start, outside;
  undisturbed([&] {
    set_up(start, c, folder.path());
    run_program(start, c);
  });
  if (start.deeds == 0) return;
  set_up(outside, c, other.path());
  Learner& learn = *outside.learn;
  if (before == Between::freeze) learn.freeze();
  if (before == Between::unfreeze) learn.unfreeze();
  if (act.deed == Deed::freeze) learn.freeze();
  if (act.deed == Deed::freeze_to_first) learn.freeze_to(1);
  if (act.deed == Deed::unfreeze) learn.unfreeze();
  expect(
      trained(*start.learn) == trained(learn),
      "after the fit, the wrong parameters are frozen");
}

// Returns Tern's message if it rejects the fit, for example because a callback
// has unfrozen an embedding that the optimizer does not support; otherwise "".
inline std::string fit_once_more(Learner& learn) {
  try {
    learn.fit(1, 1e-3);
  } catch (const std::exception& error) {
    const std::string message = message_of(error);
    if (!is_sentence(error)) {
      throw Failed("a fit after the others throws: " + message);
    }
    return message;
  }
  return "";
}

// Killed by the system at random moments, which a seed does not reproduce.
inline void check_killed(const Configuration& drawn) {
  Configuration c = drawn;
  c.keep = drawn.keep ? 1 : 2;
  const TempFolder undisturbed_folder, folder;
  Start whole;
  const auto begin = std::chrono::steady_clock::now();
  undisturbed([&] {
    set_up(whole, c, undisturbed_folder.path(), {saves(c, 1)});
    run_program(whole, c);
  });
  const std::chrono::duration<double, std::micro> time =
      std::chrono::steady_clock::now() - begin;
  const StateDict expected = end_of(*whole.learn);
  // Repeats the fit below: it may leave a branch if the first fit made no step.
  const std::string refusal = fit_once_more(*whole.learn);
  whole.learn.reset();
  constexpr int64_t kKills = 4;
  for (int64_t i = 0; i < kKills; ++i) {
    const auto wait = static_cast<useconds_t>(
        time.count() * static_cast<double>((c.step * (i + 3)) % 1000) / 1000);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        Start start;
        comes_to_its_end(start, c, folder.path(), {saves(c, 1)});
      } catch (...) {  // the last start reports errors
      }
      ::_exit(0);
    }
    ::usleep(wait);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  Start last;
  expect(
      comes_to_its_end(last, c, folder.path(), {saves(c, 1)}),
      "the run stopped without a stop request");
  expect_same("the run after kills", end_of(*last.learn), expected);
  // A run that saves something removes surplus checkpoints.
  const std::string last_refusal = fit_once_more(*last.learn);
  expect(
      last_refusal == refusal,
      fmt::format(
          "the fit after the kills was rejected with \"{}\", and without kills "
          "with \"{}\"",
          last_refusal,
          refusal));
  last.learn.reset();
  if (!refusal.empty()) return;  // it has saved and removed nothing
  const auto run = [](const TempFolder& in) { return in / "run"; };
  if (!std::filesystem::exists(run(undisturbed_folder))) return;
  for (const std::string& name : other_entries(run(folder))) {
    expect(
        other_entries(run(undisturbed_folder)).contains(name),
        "kills have left " + name);
  }
  const auto kept = list_checkpoints(run(folder));
  expect(
      std::ssize(kept) <= c.keep,
      fmt::format("{} checkpoints are kept, not {}", kept.size(), c.keep));
  for (const auto& step : kept) {
    expect(
        !run_of_checkpoint(step).empty(),
        "kills have left an incomplete " + step.filename().string());
  }
}

// A stream that ends within the first epoch equals an epoch of its length. A
// stream that ends with an epoch equals a fit of so many epochs.
inline void check_ended_stream(const Configuration& drawn) {
  Configuration streamed = drawn;
  streamed.fits.resize(1);
  FitCall& fit = streamed.fits[0];
  fit.schedule = drawn.fits[0].schedule == Schedule::torch_epoch ||
                         drawn.fits[0].schedule == Schedule::torch_batch
                     ? drawn.fits[0].schedule
                     : Schedule::flat;
  if (is_trial(fit.before)) fit.before = Between::nothing;  // reads the stream
  // Follows the number of batches that the fit was planned to have.
  std::erase(streamed.extras, Extra::flat_cos);
  Configuration in_memory = streamed;
  in_memory.stream = 0;
  if (drawn.stream < drawn.samples) {
    fit.epochs = in_memory.fits[0].epochs = 1;
    in_memory.samples = drawn.stream;
  } else {
    const int64_t epochs = drawn.stream / drawn.samples;
    streamed.stream = epochs * drawn.samples;
    in_memory.fits[0].epochs = epochs;
    fit.epochs = epochs + 1;
    for (Configuration* const c : {&streamed, &in_memory}) {
      // Averages from a fraction of the planned epochs on.
      std::erase(c->extras, Extra::swa);
      std::erase(c->extras, Extra::swa_lr);
      // The next epoch continues where this one stopped, and the last one has
      // only begun.
      std::erase(c->extras, Extra::limit);
      std::erase_if(c->acts, [&](const Act& act) {
        return act.deed == Deed::stop_epoch || act.at.epoch >= epochs;
      });
    }
  }
  const TempFolder folder, other;
  Start reference, start;
  undisturbed([&] {
    set_up(reference, in_memory, folder.path());
    run_program(reference, in_memory);
  });
  const StateDict expected = end_of(*reference.learn);
  undisturbed([&] {
    set_up(start, streamed, other.path());
    run_program(start, streamed);
  });
  expect_same(
      "the run on a stream",
      end_of(*start.learn),
      expected,
      {"training/epochs_begun",  // also one in which the stream has ended
       "training/stop_training",
       "training/data_have_ended",
       "training/callbacks/TrainMetrics",
       "training/callbacks/Recorder 0/fit_calls"});
}

/// \throws Refused, Failed.
inline void run_check(const Configuration& c) {
  switch (c.check) {
    case Check::resume:
      return check_resume(c);
    case Check::trial:
      return check_trial(c);
    case Check::pass:
      return check_pass(c);
    case Check::look:
      return check_look(c);
    case Check::by_hand:
      return check_by_hand(c);
    case Check::exception:
      return check_exception(c);
    case Check::late:
      return check_late(c);
    case Check::rate_zero:
      return check_rate_zero(c);
    case Check::saved:
      return check_saved(c);
    case Check::branch:
      return check_branch(c);
    case Check::changed:
      return check_changed(c);
    case Check::round_trip:
      return check_round_trip(c);
    case Check::frozen:
      return check_frozen(c);
    case Check::diverged:
      return check_diverged(c);
    case Check::late_freeze:
      return check_late_freeze(c);
    case Check::killed:
      return check_killed(c);
    case Check::ended:
      return check_ended_stream(c);
  }
}

}  // namespace tern::combos
