#include "tern/learner/checkpoint/training_state.h"

#include <map>

#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/rank_states.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/random_state.h"
#include "tern/learner/recorder.h"
#include "tern/learner/sparse_entries.h"
#include "tern/learner/weights/model_weights.h"

namespace tern {

namespace {

optim::ParameterNames parameter_names(Learner& learner) {
  const auto masters = master_weights(learner);
  optim::ParameterNames names;
  for (const ModelTensor& p : learner.model().parameters()) {
    const torch::Tensor stepped = masters ? masters->of(p.tensor) : p.tensor;
    names[stepped.unsafeGetTensorImpl()] = p.name;
  }
  return names;
}

// \throws CheckpointError unless both sides have the same tensors.
LoadPlan plan_of_whole_model(const Learner& learner, const StateDict& state) {
  const auto refuse = [](const std::string& why) {
    throw CheckpointError(
        "",
        fmt::format(
            "[Learner::resume] the checkpoint is from a different model: {}. "
            "Build the model that was trained, or load only the weights with "
            "Learner::load.",
            why));
  };
  LoadPlan plan;
  try {
    plan = plan_load(
        load_targets(learner),
        state,
        {.strict = false, .ignore_mismatched_sizes = true});
  } catch (const c10::ValueError&) {
    refuse("none of its tensors matches a name and shape of this model");
  }
  if (!plan.report.is_complete()) refuse(plan.report.to_string());
  return plan;
}

StateDict gradients(LearnerParts& l) {
  StateDict state;
  loop::attach_scaled_gradients(l);
  for (const ModelTensor& p : l.model.parameters()) {
    if (!p.tensor.grad().defined()) continue;
    insert_entry(state, p.name, p.tensor.grad());
  }
  loop::detach_scaled_gradients(l);
  return state;
}

void restore_gradients(LearnerParts& l, const StateDict& state) {
  Tensors restored;
  for (const ModelTensor& p : l.model.parameters()) {
    torch::Tensor grad = find_entry(state, p.name, p.tensor.sizes());
    if (grad.is_sparse()) {
      grad = grad.to(p.tensor.device(), /*non_blocking=*/false, /*copy=*/true);
    } else if (grad.defined()) {
      grad = torch::empty_like(p.tensor).copy_(grad);
    }
    restored.push_back(std::move(grad));
  }
  loop::attach_scaled_gradients(l);
  auto next = restored.begin();
  for (const ModelTensor& p : l.model.parameters()) {
    p.tensor.mutable_grad() = std::move(*next++);
  }
  loop::detach_scaled_gradients(l);
}

StateDict trained(const LearnerParts& l) {
  const torch::Tensor now = loop::trained_flags(l);
  const torch::Tensor& at_begin = l.position.trained_at_begin;
  return {{"now", now}, {"at_begin", at_begin.defined() ? at_begin : now}};
}

StateDict progress(const LearnerParts& l) {
  // On resume, an incomplete epoch begins again at its next batch.
  const bool in_epoch = l.position.place == Place::in_epoch;
  const bool at_end = l.position.place == Place::at_epoch_end;
  const std::vector<std::pair<const char*, int64_t>> numbers = {
      {"fits", l.position.fits_done},
      {"in_fit", l.state.is_fitting ? 1 : 0},
      {"in_epoch", in_epoch ? 1 : 0},
      {"epoch", l.state.is_fitting ? l.state.epoch + at_end : 0},
      {"batch", in_epoch ? l.position.batches_done : 0},
      {"epochs_begun", l.position.epochs_begun - in_epoch},
      {"iteration", l.state.iteration},
      {"stop_epoch", in_epoch && l.state.stop_epoch ? 1 : 0},
      {"stop_training", l.state.stop_training ? 1 : 0},
      {"data_have_ended", l.position.data_have_ended ? 1 : 0},
      {"pruned", l.state.result == FitResult::pruned ? 1 : 0},
      {"window_batches", l.step.window.batches()},
      {"window_samples", l.step.window.samples()}};
  StateDict result;
  for (const auto& [name, number] : numbers) {
    result.insert(name, torch::scalar_tensor(number, torch::kLong));
  }
  for (const auto& [name, number] :
       {std::pair("window_counted", l.step.window.counted()),
        {"window_expected", l.step.window.expected()}}) {
    result.insert(name, torch::scalar_tensor(number, torch::kDouble));
  }
  return result;
}

void restore_progress(LearnerParts& l, const StateDict& saved) {
  l.state.epoch = saved_integer(saved, "epoch");
  l.state.stop_training = saved_integer(saved, "stop_training") != 0;
  l.state.iteration = saved_integer(saved, "iteration");
  l.position.first_batch = saved_integer(saved, "batch");
  l.position.epochs_begun = saved_integer(saved, "epochs_begun");
  l.position.fits_done = saved_integer(saved, "fits");
  // Older checkpoints do not contain these.
  const auto number = [&](const char* name) {
    return saved.contains(name) ? saved_integer(saved, name) : 0;
  };
  l.state.stop_epoch = number("stop_epoch") != 0;
  l.position.data_have_ended = number("data_have_ended") != 0;
  if (number("pruned") != 0) l.state.result = FitResult::pruned;
  const int64_t batches = number("window_batches");
  const int64_t samples = number("window_samples");
  if (saved.contains("window_counted") && saved.contains("window_expected")) {
    l.step.window.restore(
        batches,
        samples,
        saved["window_counted"].item<double>(),
        saved["window_expected"].item<double>());
  } else {
    l.step.window.restore(batches, samples);
  }
}

torch::Tensor saved_flags(const StateDict& state, const char* name) {
  const torch::Tensor* const flags = state.find(name);
  TERN_CHECK_VALUE(
      flags && flags->dim() == 1,
      "[Learner::resume] the checkpoint does not hold \"trained/{}\"; expected "
      "a checkpoint written by SaveCheckpoint.",
      name);
  return flags->cpu();
}

}  // namespace

int64_t saved_integer(const StateDict& state, const std::string& name) {
  const torch::Tensor* const value = state.find(name);
  TERN_CHECK_VALUE(
      value && value->numel() == 1,
      "[Learner::resume] the checkpoint does not hold \"{}\"; expected a "
      "checkpoint written by SaveCheckpoint.",
      name);
  return value->item<int64_t>();
}

void put_under(
    StateDict& all,
    const std::string& prefix,
    const StateDict& state) {
  for (const auto& entry : state) {
    const torch::Tensor& tensor = entry.value();
    all.insert(
        prefix.empty() ? entry.key() : prefix + "/" + entry.key(),
        tensor.detach().to(
            tensor.options().device(torch::kCPU),
            /*non_blocking=*/false,
            /*copy=*/true));
  }
}

StateDict entries_under(const StateDict& all, const std::string& prefix) {
  if (prefix.empty()) return all;
  StateDict result;
  for (const auto& entry : all) {
    if (entry.key().starts_with(prefix + "/")) {
      result.insert(entry.key().substr(prefix.size() + 1), entry.value());
    }
  }
  return result;
}

StateDict optimizer_state(Learner& learner) {
  StateDict mine =
      optim::named_state(learner.optimizer(), parameter_names(learner));
  const auto& shard = parts_of(learner).ranks.training_shard;
  return shard ? shard->gather_state(mine) : mine;
}

void load_optimizer_state(Learner& learner, const StateDict& state) {
  optim::load_named_state(learner.optimizer(), parameter_names(learner), state);
}

std::vector<StatePart> state_parts(Learner& learner) {
  LearnerParts& l = parts_of(learner);
  l.recorder->flush();  // its state contains only losses that were read
  std::vector<StatePart> parts = {
      {"model",
       [&learner] { return learner.state_dict(); },
       [&learner](const StateDict& state) {
         apply(plan_of_whole_model(learner, state), learner);
       }},
      {"optimizer",
       [&learner] { return optimizer_state(learner); },
       [&learner](const StateDict& state) {
         load_optimizer_state(learner, state);
       }},
      {"",
       [&l] { return progress(l); },
       [&l](const StateDict& state) { restore_progress(l, state); }},
      {"trained",
       [&l] { return trained(l); },
       [&l](const StateDict& state) {
         loop::set_trained_flags(l, saved_flags(state, "now"));
         l.position.trained_at_begin = saved_flags(state, "at_begin");
       }},
      {"gradients",
       [&l] { return gradients(l); },
       [&l](const StateDict& state) { restore_gradients(l, state); }}};
  for (const auto& [name, callback] : loop::named_callbacks(l)) {
    parts.push_back(
        {name,
         [callback = callback] { return callback->state_dict(); },
         [callback = callback](const StateDict& state) {
           callback->load_state_dict(state);
         }});
  }
  parts.push_back({"random", random_state, set_random_state});
  return parts;
}

void apply_model(Learner& learner, const Checkpoint& checkpoint) {
  // Checks both before changing anything.
  LoadPlan plan = plan_of_whole_model(learner, checkpoint.model);
  load_optimizer_state(learner, checkpoint.optimizer);
  apply(plan, learner);
  loop::invalidate_derived_state(parts_of(learner));
}

void apply_training(
    Learner& learner,
    const Checkpoint& checkpoint,
    bool with_trained) {
  for (const StatePart& part : state_parts(learner)) {
    if (part.has_own_file() || (part.name == "trained" && !with_trained)) {
      continue;
    }
    const auto saved = saved_part(learner, checkpoint, part.name);
    if (saved) restore_part(part, *saved);
  }
}

void restore_part(const StatePart& part, const StateDict& state) {
  if (!state.is_empty() || !part.capture().is_empty()) part.restore(state);
}

void restore_trained_at_begin(Learner& learner, const Checkpoint& checkpoint) {
  const StateDict saved = entries_under(checkpoint.training, "trained");
  if (saved.is_empty()) return;  // from an older version
  loop::set_trained_flags(parts_of(learner), saved_flags(saved, "at_begin"));
}

}  // namespace tern
