#include "tern/callbacks/averages/swa.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

// True if the model has BatchNorm, whose statistics depend on its weights.
// Checks that they can be computed for the averaged weights.
bool needs_statistics(const char* where, Learner& learn) {
  const Model& model = learn.model();
  const bool has_batch_norm = std::ranges::count(
                                  model.buffers(),
                                  LayerKind::batch_norm,
                                  &ModelTensor::layer) > 0;
  TORCH_CHECK_NOT_IMPLEMENTED(
      model.module() || !has_batch_norm,
      fmt::format(
          "[{}] the model is a TorchScript module with BatchNorm, whose "
          "statistics cannot be computed for the averaged weights; expected a "
          "model of nn::Module.",
          where));
  TERN_CHECK_VALUE(
      !has_batch_norm ||
          !learn.data().loader(Split::train).dataset().can_end_early(),
      "[{}] the model has BatchNorm, whose statistics for the averaged weights "
      "need a pass over the training data, but the data is a stream that "
      "cannot restart; expected data that can be read again. Use Ema, or let "
      "the stream restart (StreamDataset::can_restart).",
      where);
  return has_batch_norm;
}

// Until `end`, the running statistics of the BatchNorm layers that training
// updates are plain means over batches. If the pass is incomplete, the old
// values are restored. Training does not update layers that the model keeps in
// eval mode, as add_lora does with frozen layers, or layers with momentum 0.
class PlainMeans {
 public:
  explicit PlainMeans(Model model) {
    using namespace torch::nn;  // NOLINT: local
    const bool was_training = model.is_training();
    model.train();
    for (const auto& module : model.module()->modules()) {
      if (!module->is_training()) continue;
      if (auto* bn1 = module->as<BatchNorm1d>()) begin(*bn1);
      if (auto* bn2 = module->as<BatchNorm2d>()) begin(*bn2);
      if (auto* bn3 = module->as<BatchNorm3d>()) begin(*bn3);
    }
    model.train(was_training);
  }

  bool are_none() const { return momenta_.empty(); }

  void end(bool is_complete) {
    for (const auto& [momentum, was] : momenta_) *momentum = was;
    if (is_complete) return;
    for (auto& [buffer, was] : buffers_) buffer.copy_(was);
  }

 private:
  template <class Impl>
  void begin(Impl& layer) {
    auto& momentum = layer.options.momentum();
    if (!layer.options.track_running_stats() || momentum == 0) return;
    momenta_.emplace_back(&momentum, std::exchange(momentum, std::nullopt));
    for (auto& buffer : layer.buffers()) {
      buffers_.emplace_back(buffer, buffer.clone());
    }
    layer.reset_running_stats();
  }

  std::vector<std::pair<std::optional<double>*, std::optional<double>>>
      momenta_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers_;
};

}  // namespace

bool update_batch_norm(Learner& learn) {
  if (!needs_statistics("update_batch_norm", learn)) return true;
  const torch::NoGradGuard no_grad;
  PlainMeans means(learn.model());
  if (means.are_none()) return true;
  int64_t batches = 0;
  // Callbacks may evaluate within this pass, which is not part of it.
  const auto is_this_pass = [depth = parts_of(learn).evaluation.depth +
                                     1](const Learner& l) {
    return parts_of(l).evaluation.depth == depth;
  };
  const auto in_training_mode =
      std::make_shared<LambdaCallback>(LambdaCallbackOptions{
          .on_batch_end = [&](Learner& l) { batches += is_this_pass(l); },
          .on_eval_begin =
              [&](Learner& l) {
                if (is_this_pass(l)) l.model().train();
              }});
  learn.add(in_training_mode);
  const auto end = [&] {
    learn.remove(*in_training_mode);
    const bool is_complete =
        batches == learn.data().loader(Split::train).size();
    means.end(is_complete);
    return is_complete;
  };
  try {
    learn.validate(Split::train);
  } catch (...) {
    end();
    throw;
  }
  return end();
}

Swa::Swa(Options options) : options_(std::move(options)) {
  TERN_CHECK_VALUE(
      options_.start >= 0 && options_.start < 1,
      "[Swa] start is {}; expected a fraction of the epochs in [0, 1).",
      options_.start);
  check_at_least("Swa", "anneal_epochs", options_.anneal_epochs, 1);
}

void Swa::on_add(Learner& learn) {
  WeightAverage::on_add(learn);
  check_sets_alone(learn, *this);
}

void Swa::on_train_begin(Learner& learn) {
  clear_averages();
  follow(learn);
  averaged_ = 0;
  has_put_mean_in_ = false;
  const auto epochs = static_cast<double>(learn.state().epochs);
  first_epoch_ = static_cast<int64_t>(std::floor(options_.start * epochs));
  start_rates_.clear();
  needs_statistics("Swa", learn);
}

void Swa::on_epoch_begin(Learner& learn) {
  const int64_t epoch = learn.state().epoch;
  if (!options_.lr || epoch < first_epoch_) return;
  const std::vector<double> ends =
      options_.lr->resolve(parts_of(learn).groups.size(), learn.options().lr);
  if (start_rates_.empty()) start_rates_ = learn.learning_rates();
  const double done = static_cast<double>(epoch - first_epoch_ + 1) /
                      static_cast<double>(options_.anneal_epochs);
  const double share =
      (1 - std::cos(std::numbers::pi * std::min(1.0, done))) / 2;
  std::vector<double> rates;
  for (size_t i = 0; i < ends.size(); ++i) {
    rates.push_back(start_rates_[i] + share * (ends[i] - start_rates_[i]));
  }
  loop::set_hyper_parameter(parts_of(learn), HyperParameter::lr, rates);
}

void Swa::on_epoch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (state.epoch < first_epoch_) return;
  ++averaged_;
  move_towards_weights(1 / static_cast<double>(averaged_));
}

void Swa::on_train_end(Learner& learn) {
  TrainState& state = learn.state();
  if (state.result != FitResult::completed || state.is_removal) return;
  if (!has_averages()) {
    if (state.epochs == 0) return;
    learn.options().sink->warning(fmt::format(
        "Swa: the fit ended before epoch {}, the first one to average, so the "
        "weights are not a mean",
        first_epoch_));
    return;
  }
  apply(learn);
  if (!update_batch_norm(learn)) {  // a stop interrupted the pass
    restore(learn);
    state.result = FitResult::interrupted;
    return;
  }
  forget_own();
  has_put_mean_in_ = true;
  learn.options().sink->line(fmt::format(
      "Swa: the weights are now the mean of {} epoch{}.",
      averaged_,
      averaged_ == 1 ? "" : "s"));
}

StateDict Swa::state_dict() const {
  StateDict state;
  // The learning rates already anneal before the first epoch is averaged.
  if (!has_averages() && start_rates_.empty()) return state;
  state.insert("averaged", torch::tensor(averaged_, torch::kLong));
  state.insert("start_rates", torch::tensor(start_rates_, torch::kDouble));
  save_averages(state);
  return state;
}

void Swa::load_state_dict(const StateDict& state) {
  clear_averages();
  averaged_ = 0;
  start_rates_.clear();
  if (state.is_empty()) return;
  averaged_ = saved_value("Swa", state, "averaged").item<int64_t>();
  start_rates_ = saved_numbers("Swa", state, "start_rates");
  load_averages(state);
}

OptionValues Swa::option_values() const {
  return {
      {"start", option_text(options_.start)},
      {"lr", std::string(options_.lr ? "given" : "unset")},
      {"anneal_epochs", option_text(options_.anneal_epochs)}};
}

}  // namespace tern
