#include "tern/callbacks/save_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/ema.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

// With Ema, the averages: it is they that validation has judged.
void save_judged(Learner& learn, const std::string& name) {
  // Other ranks have their part in it, where a training is divided.
  if (!learn.is_main_process() && !learn.training_shard()) return;
  const auto ema = learn.find<Ema>();
  if (!ema) return learn.save(name);
  ema->apply(learn);
  try {
    learn.save(name);
  } catch (...) {
    ema->restore(learn);
    throw;
  }
  ema->restore(learn);
}

}  // namespace

SaveModel::SaveModel(Options options)
    : options_(std::move(options)),
      monitor_(
          "SaveModel",
          {options_.monitor, options_.mode, options_.min_delta}) {
  TORCH_CHECK_VALUE(
      options_.every_epochs >= 0 && options_.top_k >= 0 &&
          !options_.name.empty(),
      fmt::format(
          "[SaveModel] every_epochs is {}, top_k {} and the name \"{}\"; "
          "expected numbers >= 0 and a name.",
          options_.every_epochs,
          options_.top_k,
          options_.name));
}

void SaveModel::on_train_begin(Learner& learn) {
  if (learn.state().is_trial) return;
  monitor_.begin(learn);
  has_saved_ = has_loaded_ = false;
  best_.clear();
}

void SaveModel::on_epoch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (state.is_trial) return;
  if (options_.every_epochs > 0 &&
      (state.epoch + 1) % options_.every_epochs == 0) {
    save_judged(learn, fmt::format("{}_{}", options_.name, state.epoch));
  }
  const double value = monitor_.value(learn);
  if (options_.top_k > 0) keep_among_best(learn, value, state.epoch);
  if (!monitor_.improves(value)) return;
  save_judged(learn, options_.name);
  has_saved_ = true;
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
  // Saved before an older one goes.
  save_judged(learn, name_of_best(epoch));
  best_.insert(at, entry);
  if (static_cast<int64_t>(best_.size()) <= options_.top_k) return;
  if (learn.is_main_process()) {
    learn.remove_saved(name_of_best(best_.back().second));
  }
  best_.pop_back();
}

void SaveModel::on_train_end(Learner& learn) {
  const TrainState& state = learn.state();
  has_loaded_ = options_.load_best && has_saved_ && !state.is_trial &&
                !state.failed && state.result == FitResult::completed;
  // Of several processes the first, which gives it to the others.
  if (has_loaded_ && learn.is_main_process()) learn.load(options_.name);
}

StateDict SaveModel::state_dict() const {
  StateDict state;
  monitor_.save(state);
  state.insert("has_saved", torch::scalar_tensor(has_saved_, torch::kLong));
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
  TORCH_CHECK_VALUE(
      state.contains("has_saved") && state.contains("values") &&
          state.contains("epochs") &&
          state["values"].sizes() == state["epochs"].sizes(),
      "[SaveModel] the state says not what was saved; expected that of a "
      "SaveModel.");
  monitor_.load(state);
  has_saved_ = state["has_saved"].item<int64_t>() != 0;
  best_.clear();
  for (int64_t i = 0; i < state["values"].numel(); ++i) {
    best_.emplace_back(
        state["values"][i].item<double>(),
        static_cast<int64_t>(state["epochs"][i].item<double>()));
  }
}

}  // namespace tern
