#include <algorithm>
#include <ranges>
#include <utility>

#include <ATen/autocast_mode.h>
#include <fmt/ranges.h>

#include "tern/data/fingerprint.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/dry_run.h"
#include "tern/learner/loop.h"
#include "tern/learner/random_state.h"

namespace tern {

const char* to_string(FitResult result) {
  switch (result) {
    case FitResult::completed:
      return "completed";
    case FitResult::interrupted:
      return "interrupted";
    case FitResult::failed:
      return "failed";
    case FitResult::pruned:
      break;
  }
  return "pruned";
}

namespace {

void check_has_batches(
    const char* name,
    const DataLoader& loader,
    const char* other_cure) {
  TERN_CHECK_VALUE(
      loader.size() > 0,
      "[Learner::fit] the {} loader has no batch: {} samples, batch size "
      "{}{}. Use a smaller batch size or more data{}.",
      name,
      loader.dataset().size(),
      loader.options().batch_size,
      loader.options().drop_last ? ", the short last batch dropped" : "",
      other_cure);
}

void check_trainable(const LearnerParts& l) {
  TERN_CHECK_VALUE(
      loop::trained_parameters(l) > 0,
      "[Learner::fit] none of the model's {} parameters requires a gradient, "
      "so there is nothing to train. Call unfreeze(), which also works for the "
      "parameters of a TorchScript module.",
      l.model.parameters().size());
}

// Warns because a module that was traced in eval mode behaves differently in
// training than its author may expect.
void tell_of_fixed_modes(const LearnerParts& l) {
  const FixedModes modes = l.model.fixed_modes();
  if (modes.evaluation.empty()) return;
  l.options.sink->warning(fmt::format(
      "the TorchScript module keeps {} in evaluation mode even in training, "
      "because it was traced in that mode. Save it with torch.jit.script to "
      "train it.",
      fmt::join(modes.evaluation, " and ")));
}

}  // namespace

int64_t loop::trained_parameters(const LearnerParts& l) {
  const auto parameters = l.model.parameters();
  return std::count_if(
      parameters.begin(),
      parameters.end(),
      [](const ModelTensor& p) { return p.tensor.requires_grad(); });
}

namespace {

// The value of a parameter in `trained_flags`.
enum class Trained : uint8_t { no, yes, frozen_by_learner };

}  // namespace

torch::Tensor loop::trained_flags(const LearnerParts& l) {
  const auto parameters = l.model.parameters();
  torch::Tensor flags = torch::empty(std::ssize(parameters), torch::kByte);
  auto* flag = flags.mutable_data_ptr<uint8_t>();
  for (const ModelTensor& p : parameters) {
    const Trained trained = p.tensor.requires_grad() ? Trained::yes
                            : l.groups.frozen.contains(p.name)
                                ? Trained::frozen_by_learner
                                : Trained::no;
    *flag++ = static_cast<uint8_t>(trained);
  }
  return flags;
}

void loop::set_trained_flags(LearnerParts& l, const torch::Tensor& flags) {
  const auto parameters = l.model.parameters();
  TERN_CHECK_VALUE(
      flags.numel() == std::ssize(parameters) &&
          (flags.scalar_type() == torch::kByte ||
           flags.scalar_type() == torch::kBool),
      "[Learner::resume] the checkpoint has flags for {} parameters; expected "
      "{}, one per parameter of the model.",
      flags.numel(),
      parameters.size());
  // Older checkpoints do not record whether the Learner or the program froze a
  // parameter.
  const bool is_old = flags.scalar_type() == torch::kBool;
  const torch::Tensor bytes = flags.to(torch::kByte);
  const auto* flag = bytes.const_data_ptr<uint8_t>();
  for (const ModelTensor& p : parameters) {
    const auto trained = static_cast<Trained>(*flag++);
    const bool is_trained = trained == Trained::yes;
    if (trained == Trained::frozen_by_learner || (is_old && !is_trained)) {
      l.groups.frozen.insert(p.name);
    } else {
      l.groups.frozen.erase(p.name);
    }
    if (p.tensor.requires_grad() == is_trained) continue;
    p.tensor.requires_grad_(is_trained);
    if (!is_trained) p.tensor.mutable_grad().reset();
    if (l.step.runner) l.step.runner->forget();
  }
}

const std::string& loop::data_fingerprint(LearnerParts& l) {
  auto& [known, text] = l.position.fingerprint;
  const auto dataset = l.data.loader(Split::train).dataset_ptr();
  if (known == dataset) return text;
  std::string own = fingerprint(*dataset);
  if (l.ranks.communicator && !l.ranks.shard_data) {
    std::string of_all;
    for (int64_t r = 0; r < l.ranks.communicator->world_size(); ++r) {
      of_all += broadcast_text(*l.ranks.communicator, own, r);
    }
    own = sha256(as_bytes(of_all)).substr(0, own.size());
  }
  known = dataset;
  return text = own;
}

std::map<std::string, std::string> loop::data_settings(LearnerParts& l) {
  const DataLoader& train = l.data.loader(Split::train);
  const int64_t processes =
      l.ranks.communicator ? l.ranks.communicator->world_size() : 1;
  return {
      {"samples",
       l.ranks.shard_data ? std::to_string(train.dataset().size())
                          : "each rank's own"},
      {"batch size", std::to_string(train.options().batch_size)},
      {"batches", std::to_string(training_loader(l).size())},
      {"loader's seed", std::to_string(train.options().seed)},
      {"processes", std::to_string(processes)},
      {"classes", fmt::format("{}", fmt::join(l.data.classes, ", "))}};
}

std::map<std::string, std::string>
loop::fit_settings(LearnerParts& l, int64_t epochs, const LearningRates& lr) {
  auto result = data_settings(l);
  const std::vector<double> rates = l.resolve(lr);
  result.insert(
      {{"epochs", std::to_string(epochs)},
       {"learning rates", fmt::format("{}", fmt::join(rates, ", "))},
       {"trained parameters", std::to_string(trained_parameters(l))}});
  return result;
}

namespace {

// "fit(5, {1e-05, 0.001}, {ParamScheduler})". Contains a single learning rate
// if all layer groups have the same learning rate. Callbacks that Tern's own
// schedules add are omitted.
std::string call_text(LearnerParts& l, int64_t epochs, const Callbacks& extra) {
  const std::vector<double> rates = l.self->learning_rates();
  const bool is_one = std::ranges::count(rates, rates[0]) == std::ssize(rates);
  std::string text = fmt::format("{}({}, ", l.position.caller, epochs);
  text += is_one ? fmt::format("{}", rates[0])
                 : fmt::format("{{{}}}", fmt::join(rates, ", "));
  if (!extra.empty() && l.position.caller == "fit") {
    const auto names = extra | std::views::transform([](const auto& callback) {
                         return callback->name();
                       });
    text += fmt::format(", {{{}}}", fmt::join(names, ", "));
  }
  return text + ")";
}

}  // namespace

NoAutocast::NoAutocast(torch::Device device)
    : device_(device.type()),
      was_on_(at::autocast::is_autocast_enabled(device_)) {
  if (!was_on_) return;
  at::autocast::set_autocast_enabled(device_, false);
  // An evaluation within a forward pass may use different weights (Ema).
  at::autocast::clear_cache();
}

NoAutocast::~NoAutocast() {
  if (!was_on_) return;
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::clear_cache();
}

FitScope::FitScope(
    LearnerParts& l,
    int64_t epochs,
    const LearningRates& lr,
    Callbacks extra)
    : l_(l),
      extra_(std::move(extra)),
      no_autocast_(l.data.device),
      warnings_(*l.options.sink) {
  TERN_CHECK_VALUE(
      epochs >= 0,
      "[Learner::fit] epochs is {}; expected 0 or more.",
      epochs);
  TORCH_CHECK(
      !l.state.is_fitting,
      "[Learner::fit] this Learner is already training; call fit after the "
      "running fit has returned.");
  TORCH_CHECK(
      l.evaluation.depth == 0,
      "[Learner::fit] this Learner is in the middle of validate, get_preds or "
      "predict; call fit after that has returned.");
  check_has_batches("train", l.data.loader(Split::train), "");
  if (l.data.valid) {
    check_has_batches(
        "valid",
        *l.data.valid,
        ", or omit the loader: data.valid = nullptr");
  }
  loop::follow_model(l);
  l.step.knows_parameters = false;
  check_trainable(l);
  tell_of_fixed_modes(l);
  l.position.own_rates = l.resolve(lr);
  l.self->set_learning_rates(lr);
  l.position.call = call_text(l, epochs, extra_);
  l.position.trained_at_begin = loop::trained_flags(l);
  settings_before_ =
      std::exchange(l.position.fit_settings, loop::fit_settings(l, epochs, lr));

  TrainState& state = l.state;
  state.epoch = 0;
  state.epochs = epochs;
  state.result = FitResult::completed;
  state.stop_training = state.failed = false;
  l.position.data_have_ended = false;
  state.is_dry_run =
      std::any_of(extra_.begin(), extra_.end(), [](const auto& callback) {
        return dynamic_cast<const DryRun*>(callback.get()) != nullptr;
      });
  state.accumulation = {};
  l.stop.fit_thread = std::this_thread::get_id();
  state.is_fitting = true;
  try {
    for (const auto& callback : extra_) {
      l.self->add(callback);
      l_.callbacks.extras.insert(callback.get());
      ++added_;
    }
  } catch (...) {
    leave();
    l.position.fit_settings = std::move(settings_before_);
    throw;
  }
}

void FitScope::leave() {
  l_.callbacks.begun_fit.reset();
  l_.callbacks.begun_epoch.reset();
  l_.callbacks.extras.clear();
  l_.position.place = Place::outside_epoch;
  for (size_t i = 0; i < added_; ++i) l_.self->remove(*extra_[i]);
  TrainState& state = l_.state;
  state.training = false;
  l_.position.first_batch = 0;
  l_.step.has_gradients = l_.step.is_running = l_.step.follows_batch = false;
  l_.step.window.close();
  l_.evaluation.passes = 0;
  state.loss_grad.reset();
  loop::clear_batch(l_);
  if (l_.step.runner) l_.step.runner->end(*l_.self);
  state.is_fitting = false;
  l_.stop.fit_thread = std::thread::id();
  is_open_ = false;
}

std::exception_ptr FitScope::run_train_end(bool failed) {
  TrainState& state = l_.state;
  state.failed = failed;
  if (failed) state.result = FitResult::failed;
  l_.callbacks.begun_fit.reset();  // later changes of the list send no event
  return loop::run_all(l_, Event::train_end, failed);
}

namespace {

// LibTorch has few operations for sparse gradients: on a CPU it cannot sum them
// in 16 bits, and it cannot add weight decay to them.
void explain_sparse_gradients(
    const LearnerParts& l,
    const std::exception& error) {
  const std::string reason = message_of(error);
  const bool is_known = reason.find("cadd_sparse") != std::string::npos ||
                        reason.find("add(sparse, dense)") != std::string::npos;
  TERN_CHECK_VALUE(
      !is_known,
      "[Learner::fit] a parameter's gradient is sparse, which LibTorch does "
      "not support in {}: {} Create the embedding with sparse(false), keep it "
      "in fp32, or train it without weight decay.",
      loop::precision_text(l),
      reason);
}

}  // namespace

void FitScope::run(c10::function_ref<void()> train) {
  try {
    train();
  } catch (const std::exception& error) {
    loop::run_exception(l_, error);
    explain_sparse_gradients(l_, error);
    loop::explain_out_of_memory(
        l_,
        error,
        l_.state.loss_grad.defined() ? "the backward pass"
                                     : "the optimizer's step");
    throw;
  }
  end();
}

void FitScope::end() {
  const std::exception_ptr error = run_train_end(/*failed=*/false);
  if (error) {
    l_.state.failed = true;
    l_.state.result = FitResult::failed;
  }
  if (!l_.state.is_dry_run) {
    l_.callbacks.removed_in_fits[l_.position.fits_done] =
        loop::removed_in_fit(l_);
    ++l_.position.fits_done;
    l_.position.resumed_logs.reset();
    if (l_.state.result == FitResult::interrupted) {
      l_.options.sink->line(
          fmt::format("Stopped on request at step {}.", l_.state.iteration));
    }
  }
  // From here on, `state.result` keeps later fits from running.
  if (l_.state.result == FitResult::interrupted) {
    l_.stop.requested = l_.stop.requested_here = false;
  }
  loop::zero_grad(l_);
  leave();
  if (error) std::rethrow_exception(error);
}

// The scope is still open here only after an exception, which propagates to the
// caller.
FitScope::~FitScope() {
  if (!is_open_) return;
  try {
    run_train_end(/*failed=*/true);
    loop::zero_grad(l_);
    leave();
    l_.position.fit_settings = std::move(settings_before_);
  } catch (...) {
    l_.state.is_fitting = false;
    l_.stop.fit_thread = std::thread::id();
  }
}

EvalScope::EvalScope(LearnerParts& l, const PassOptions& pass)
    : l_(l),
      was_training_(l.model.is_training()),
      outer_pass_(l.evaluation.pass),
      passes_(l.evaluation.passes),
      no_autocast_(l.data.device),
      warnings_(*l.options.sink) {
  const std::thread::id fit_thread = l.stop.fit_thread;
  TORCH_CHECK(
      fit_thread == std::thread::id() ||
          fit_thread == std::this_thread::get_id(),
      "[Learner] validate, get_preds and predict were called from a different "
      "thread than the running fit; call them from a callback, or after fit "
      "has returned.");
  const bool is_in_step =
      l.state.training &&
      (l.step.is_running || !l.state.batch_data.inputs.empty());
  if (is_in_step || l.evaluation.depth > 0) step_ = Step{};
  swap_step();
  outer_logged_ = std::exchange(l.evaluation.logged, {});
  ++l_.evaluation.depth;
  l_.evaluation.pass = pass;
  l_.evaluation.was_cut = false;
  use_own_random_numbers();
  l_.model.eval();
  l_.state.training = false;
  try {
    loop::run(l_, Event::eval_begin);
    if (pass.is_common) loop::broadcast_buffers(l_);
  } catch (...) {
    leave(/*failed=*/true);
    throw;
  }
}

// Training draws the same random numbers with and without evaluations. A pass
// of the loop, which a resumed run repeats, is seeded with its epoch; any other
// pass draws new numbers each time.
void EvalScope::use_own_random_numbers() {
  constexpr int64_t kOfTheLoop = int64_t{1} << 40;
  random_ = random_state();
  if (l_.evaluation.pass.can_be_cut) {
    seed_random_state(l_.position.epochs_begun, kOfTheLoop);
  } else {
    seed_random_state(l_.state.iteration, l_.evaluation.passes++);
  }
}

void EvalScope::swap_step() {
  if (!step_) return;
  TrainState& state = l_.state;
  std::swap(state.training, step_->training);
  std::swap(state.batch, step_->batch);
  std::swap(state.batches, step_->batches);
  std::swap(state.batch_data, step_->batch_data);
  std::swap(state.outputs, step_->outputs);
  std::swap(l_.step.host_targets, step_->host_targets);
  std::swap(l_.step.sample_indices, step_->sample_indices);
  std::swap(state.loss, step_->loss);
  std::swap(state.loss_grad, step_->loss_grad);
  std::swap(state.batch_loss, step_->batch_loss);
  std::swap(l_.step.loss_count, step_->loss_count);
}

std::exception_ptr EvalScope::leave(bool failed) {
  is_open_ = false;
  const bool was_cut = std::exchange(l_.evaluation.was_cut, false);
  std::exception_ptr error = loop::run_all(l_, Event::eval_end, failed);
  --l_.evaluation.depth;
  set_random_state(random_);
  l_.evaluation.pass = outer_pass_;
  // The resumed run repeats the pass with the same random numbers.
  if (was_cut) l_.evaluation.passes = passes_;
  l_.evaluation.logged_in_last =
      std::exchange(l_.evaluation.logged, std::move(outer_logged_));
  l_.model.train(was_training_);
  loop::clear_batch(l_);
  swap_step();
  return error;
}

void EvalScope::end() {
  if (const auto error = leave(/*failed=*/false)) std::rethrow_exception(error);
}

// The scope is still open here only after an exception, which propagates to the
// caller.
EvalScope::~EvalScope() {
  if (is_open_) leave(/*failed=*/true);
}

}  // namespace tern
