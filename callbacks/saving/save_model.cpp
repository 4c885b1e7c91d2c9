#include "tern/callbacks/saving/save_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/option_text.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/save.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

// Returns rank 0's value on every rank, so that all ranks save and load after
// the same epoch, even if only rank 0 writes.
double of_main(Learner& learn, double value) {
  const torch::Tensor said = torch::scalar_tensor(value, torch::kDouble);
  communicator(learn).broadcast({said});
  return said.item<double>();
}

}  // namespace

SaveModel::SaveModel(Options options)
    : options_(std::move(options)),
      monitor_(
          "SaveModel",
          options_.monitor,
          options_.min_delta,
          options_.mode,
          options_.reset_on_fit) {
  check_at_least("SaveModel", "every_epochs", options_.every_epochs, 0);
  check_at_least("SaveModel", "top_k", options_.top_k, 0);
  TORCH_CHECK_VALUE(
      !options_.name.empty(),
      "[SaveModel] the name is empty; expected one such as \"best\".");
}

void SaveModel::on_add(Learner& learn) {
  const auto file = [](const SaveModel& saver) {
    return std::filesystem::path(saver.options_.name).lexically_normal();
  };
  for (const auto& other : learn.callbacks()) {
    const auto* const saver = dynamic_cast<const SaveModel*>(other.get());
    TERN_CHECK_VALUE(
        !saver || file(*saver) != file(*this),
        "[Learner::add] the SaveModel of {} and the SaveModel of {} would both "
        "write \"{}\"; give one of them a different .name.",
        saver ? saver->options_.monitor : "",
        options_.monitor,
        options_.name);
  }
  parts_of(learn).position.unsaved_models.emplace(options_.name, "");
}

// A callback added for one fit is removed while is_fitting is still true. Its
// entry then remains, because the program may load its model afterwards.
void SaveModel::on_remove(Learner& learn) {
  if (learn.state().is_fitting) return;
  parts_of(learn).position.unsaved_models.erase(options_.name);
}

void SaveModel::on_train_begin(Learner& learn) {
  has_loaded_ = false;
  monitor_.begin(learn);
  is_best_unsaved_ = false;
  has_warned_of_write_ = has_warned_of_divergence_ = false;
  if (options_.reset_on_fit) {
    has_saved_ = false;
    best_epoch_ = 0;
    best_.clear();
  }
  if (!has_saved_)
    parts_of(learn).position.unsaved_models[options_.name] = why_unsaved();
  if (!communicator(learn).is_main_process()) return;
  // Detects a folder that cannot be written now, and not only after an epoch.
  const std::filesystem::path file =
      learn.options().path / learn.options().model_dir / options_.name;
  make_folders(file.parent_path());
  AtomicFile(file).write("x");
}

// With Ema, saves the averaged weights, because those were evaluated.
SaveModel::Outcome SaveModel::save_judged(
    Learner& learn,
    const std::string& name) {
  const auto ema = learn.find<Ema>();
  if (!ema) return save(learn, name);
  ema->apply(learn);
  Outcome outcome{};
  try {
    outcome = save(learn, name);
  } catch (...) {
    ema->restore(learn);
    throw;
  }
  ema->restore(learn);
  return outcome;
}

SaveModel::Outcome SaveModel::save(Learner& learn, const std::string& name) {
  const bool is_main = communicator(learn).is_main_process();
  const std::string bad =
      is_main
          ? broken_tensor(learn.model().parameters(), learn.model().buffers())
          : "";
  if (of_main(learn, bad.empty() ? 0 : 1) != 0) {
    if (!std::exchange(has_warned_of_divergence_, true)) {
      learn.options().sink->warning(fmt::format(
          "SaveModel: \"{}\" is not saved after epoch {}: \"{}\" holds values "
          "that are not finite, so training has diverged. The previous file is "
          "kept.",
          name,
          learn.state().epoch,
          bad));
    }
    return Outcome::diverged;
  }
  try {
    learn.save(name);
  } catch (const DataError& error) {
    if (!std::exchange(has_warned_of_write_, true)) {
      learn.options().sink->warning(fmt::format(
          "SaveModel: {}. Training continues; \"{}\" is not saved after epoch "
          "{}.",
          reason_of(error),
          name,
          learn.state().epoch));
    }
    return Outcome::not_written;
  }
  return Outcome::saved;
}

void SaveModel::on_epoch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (options_.every_epochs > 0 &&
      (state.epoch + 1) % options_.every_epochs == 0) {
    save_judged(learn, fmt::format("{}_{}", options_.name, state.epoch));
  }
  const double value = monitor_.value(learn);
  const int64_t epoch = number_of_epoch(learn);
  if (options_.top_k > 0) keep_among_best(learn, value, epoch);
  is_best_unsaved_ = false;
  if (!monitor_.is_better(value)) return;
  const Outcome outcome = save_judged(learn, options_.name);
  is_best_unsaved_ = outcome == Outcome::not_written;
  if (outcome != Outcome::saved) return;
  monitor_.improves(value);
  has_saved_ = true;
  best_epoch_ = epoch;
  learn.options().sink->line(fmt::format(
      "SaveModel: epoch {} is the best{} so far, with {} {:.6f}; saved \"{}\".",
      epoch,
      monitor_.scope(learn),
      options_.monitor,
      value,
      options_.name));
}

// Converts to the Recorder's numbering of epochs, in which this fit's epochs
// come last.
int64_t SaveModel::place_of_best(Learner& learn) const {
  const int64_t epochs = std::ssize(learn.recorder().epochs());
  return options_.reset_on_fit ? epochs - learn.state().epoch + best_epoch_
                               : best_epoch_;
}

// Epochs of several fits are distinguished by their number in the Recorder.
int64_t SaveModel::number_of_epoch(Learner& learn) const {
  return options_.reset_on_fit ? learn.state().epoch
                               : std::ssize(learn.recorder().epochs()) - 1;
}

std::string SaveModel::name_of_best(int64_t epoch) const {
  return fmt::format("{}_best_{}", options_.name, epoch);
}

void SaveModel::keep_among_best(Learner& learn, double value, int64_t epoch) {
  if (std::isnan(value)) return;
  const auto beats = [this](const auto& a, const auto& b) {
    return monitor_.higher_is_better() ? a.first > b.first : a.first < b.first;
  };
  const std::pair<double, int64_t> entry(value, epoch);
  const auto at = std::upper_bound(best_.begin(), best_.end(), entry, beats);
  if (at - best_.begin() >= options_.top_k) return;
  // Saved before an older one is removed.
  if (save_judged(learn, name_of_best(epoch)) != Outcome::saved) return;
  best_.insert(at, entry);
  if (static_cast<int64_t>(best_.size()) <= options_.top_k) return;
  if (communicator(learn).is_main_process()) {
    remove_saved(learn, name_of_best(best_.back().second));
  }
  best_.pop_back();
}

void SaveModel::on_train_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (state.is_removal) return;
  auto& unsaved = parts_of(learn).position.unsaved_models;
  if (has_saved_) {
    unsaved.erase(options_.name);
  } else {
    unsaved[options_.name] = why_unsaved();
  }
  if (state.failed || state.result == FitResult::interrupted) return;
  if (communicator(learn).is_main_process()) {
    remove_earlier_model(learn, options_.name);
  }
  warn_without_best(learn);
  if (!options_.load_best || !has_saved_) return;
  const auto swa = learn.find<Swa>();
  if (swa && swa->has_put_mean_in()) {
    learn.options().sink->line(fmt::format(
        "SaveModel: the model keeps the averaged weights of Swa; "
        "learn.load(\"{}\") loads the best epoch.",
        options_.name));
    return;
  }
  if (is_best_unsaved_) {
    learn.options().sink->warning(fmt::format(
        "SaveModel: the model keeps the last epoch, which is the best but "
        "could not be saved; \"{}\" holds an earlier one.",
        options_.name));
    return;
  }
  if (of_main(learn, is_there(learn) ? 1 : 0) == 0) {
    learn.options().sink->warning(fmt::format(
        "SaveModel: the model keeps the last epoch: \"{}\" of epoch {}, the "
        "best, no longer exists: a later part of this run, which resume has "
        "discarded, had replaced it.",
        options_.name,
        best_epoch_));
    return;
  }
  has_loaded_ = true;
  // With several processes, rank 0 loads and the others receive the weights
  // from it.
  if (communicator(learn).is_main_process()) load_best(learn);
  learn.options().sink->line(fmt::format(
      "SaveModel: loaded \"{}\" of epoch {}, the best{}, with {} {:.6f}.",
      options_.name,
      best_epoch_,
      monitor_.scope(learn),
      options_.monitor,
      monitor_.best()));
  learn.recorder().add_call(
      fmt::format(
          "SaveModel: load({}) of epoch {}, the best by {}",
          options_.name,
          best_epoch_,
          options_.monitor),
      place_of_best(learn));
  for (const auto& callback : learn.callbacks()) {
    auto* const log = dynamic_cast<JsonLinesLogger*>(callback.get());
    if (log) log->log_load(options_.name, best_epoch_);
  }
}

bool SaveModel::is_there(const Learner& learn) const {
  std::error_code ignored;
  return std::filesystem::exists(
      learn.options().path / learn.options().model_dir /
          (options_.name + ".safetensors"),
      ignored);
}

void SaveModel::warn_without_best(Learner& learn) const {
  const std::string why = monitor_.why_no_value();
  if (has_saved_ || why.empty()) return;
  const bool is_of_another =
      is_there(learn) && !is_saved_by_run(learn, options_.name);
  learn.options().sink->warning(fmt::format(
      "SaveModel: {}, so there is no best epoch: nothing was saved, and the "
      "model keeps the last epoch.{}",
      why,
      is_of_another
          ? fmt::format(" \"{}\" belongs to a different run.", options_.name)
          : ""));
}

std::string SaveModel::why_unsaved() const {
  std::string why = monitor_.why_no_value();
  if (!why.empty()) return why;
  return has_warned_of_write_ || has_warned_of_divergence_
             ? "no epoch of the last fit could be saved"
             : "no epoch of the last fit was complete";
}

void SaveModel::load_best(Learner& learn) {
  try {
    learn.load(options_.name);
  } catch (const DataError&) {
    // The disk may have become full between weights and optimizer state.
    if (!has_warned_of_write_) throw;
    learn.load(options_.name, {.with_optimizer = false});
    learn.options().sink->warning(fmt::format(
        "SaveModel: the optimizer starts with a new state, since its state "
        "could not be saved with the weights of \"{}\".",
        options_.name));
  }
}

StateDict SaveModel::state_dict() const {
  StateDict state;
  monitor_.save(state);
  state.insert("has_saved", torch::scalar_tensor(has_saved_, torch::kLong));
  state.insert("best_epoch", torch::scalar_tensor(best_epoch_, torch::kLong));
  std::vector<double> values, epochs;
  for (const auto& [value, epoch] : best_) {
    values.push_back(value);
    epochs.push_back(static_cast<double>(epoch));
  }
  state.insert("values", torch::tensor(values, torch::kDouble));
  state.insert("epochs", torch::tensor(epochs, torch::kDouble));
  return state;
}

void SaveModel::load_state_dict(const StateDict& state) {
  const auto values = saved_numbers("SaveModel", state, "values");
  const auto epochs = saved_numbers("SaveModel", state, "epochs");
  TORCH_CHECK_VALUE(
      values.size() == epochs.size(),
      "[SaveModel] the saved state has different numbers of values and epochs; "
      "expected the state of a SaveModel.");
  has_saved_ =
      saved_value("SaveModel", state, "has_saved").item<int64_t>() != 0;
  // Missing in older checkpoints.
  best_epoch_ =
      state.contains("best_epoch")
          ? saved_value("SaveModel", state, "best_epoch").item<int64_t>()
          : 0;
  monitor_.load(state);
  best_.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    best_.emplace_back(values[i], static_cast<int64_t>(epochs[i]));
  }
}

OptionValues SaveModel::option_values() const {
  return {
      {"monitor", option_text(options_.monitor)},
      {"min_delta", option_text(options_.min_delta)},
      {"name", option_text(options_.name)},
      {"every_epochs", option_text(options_.every_epochs)},
      {"top_k", option_text(options_.top_k)},
      {"load_best", option_text(options_.load_best)},
      {"mode", option_text(options_.mode)},
      {"reset_on_fit", option_text(options_.reset_on_fit)}};
}

}  // namespace tern
