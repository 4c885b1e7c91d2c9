#include "tern/learner/checkpoint/training_state.h"

#include <map>

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/recorder.h"
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

// \throws CheckpointError unless each tensor has its place.
LoadPlan plan_of_whole_model(const Learner& learner, const StateDict& state) {
  const auto refuse = [](const std::string& why) {
    throw CheckpointError(
        "",
        fmt::format(
            "[Learner::resume] the checkpoint is of another model: {}. Build "
            "the model that was trained, or take over weights alone with "
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
    refuse("none of its tensors has a name and shape of this one's");
  }
  if (!plan.report.is_complete()) refuse(plan.report.to_string());
  return plan;
}

// LibTorch's generators of random numbers by name: "cpu", "cuda:0", ...
std::vector<std::pair<std::string, at::Generator>> default_generators() {
  std::vector<std::pair<std::string, at::Generator>> generators = {
      {"cpu", at::globalContext().defaultGenerator(torch::kCPU)}};
  for (c10::DeviceIndex i = 0; i < torch::cuda::device_count(); ++i) {
    const torch::Device device(torch::kCUDA, i);
    generators.emplace_back(
        device.str(),
        at::globalContext().defaultGenerator(device));
  }
  return generators;
}

StateDict random_state() {
  StateDict state;
  for (const auto& [name, generator] : default_generators()) {
    state.insert(name, generator.get_state());
  }
  return state;
}

void restore_random_state(const StateDict& state) {
  for (auto& [name, generator] : default_generators()) {
    const torch::Tensor* const saved = state.find(name);
    if (saved) generator.set_state(*saved);
  }
}

StateDict gradients(LearnerParts& l) {
  StateDict state;
  loop::attach_scaled_gradients(l);
  for (const ModelTensor& p : l.model.parameters()) {
    if (p.tensor.grad().defined()) state.insert(p.name, p.tensor.grad());
  }
  loop::detach_scaled_gradients(l);
  return state;
}

void restore_gradients(LearnerParts& l, const StateDict& state) {
  loop::attach_scaled_gradients(l);
  for (const ModelTensor& p : l.model.parameters()) {
    if (const torch::Tensor* const grad = state.find(p.name)) {
      p.tensor.mutable_grad() = torch::empty_like(p.tensor).copy_(*grad);
    }
  }
  loop::detach_scaled_gradients(l);
}

StateDict progress(const LearnerParts& l) {
  // An epoch that is not complete is begun once more, at its next batch.
  const bool in_epoch = l.position.place == Place::in_epoch;
  const bool at_end = l.position.place == Place::at_epoch_end;
  // What was asked from outside is not a part of the training.
  const bool stops = l.state.stop_training && !l.stop.requested;
  const std::vector<std::pair<const char*, int64_t>> numbers = {
      {"fits", l.position.fits_done},
      {"in_fit", l.state.is_fitting ? 1 : 0},
      {"in_epoch", in_epoch ? 1 : 0},
      {"epoch", l.state.is_fitting ? l.state.epoch + at_end : 0},
      {"batch", in_epoch ? l.position.batches_done : 0},
      {"epochs_begun", l.position.epochs_begun - in_epoch},
      {"iteration", l.state.iteration},
      {"stop_training", stops ? 1 : 0},
      {"window_batches", l.step.window.batches()},
      {"window_samples", l.step.window.samples()}};
  StateDict result;
  for (const auto& [name, number] : numbers) {
    result.insert(name, torch::scalar_tensor(number, torch::kLong));
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
  // Older checkpoints have none.
  const auto of_window = [&](const char* name) {
    return saved.contains(name) ? saved_integer(saved, name) : 0;
  };
  l.step.window.restore(
      of_window("window_batches"),
      of_window("window_samples"));
}

}  // namespace

int64_t saved_integer(const StateDict& state, const std::string& name) {
  const torch::Tensor* const value = state.find(name);
  TERN_CHECK_VALUE(
      value && value->numel() == 1,
      "[Learner::resume] the checkpoint does not hold \"{}\"; expected one "
      "that SaveCheckpoint wrote.",
      name);
  return value->item<int64_t>();
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

std::vector<std::pair<std::string, Callback*>> named_callbacks(
    Learner& learner) {
  std::vector<std::pair<std::string, Callback*>> result;
  std::map<std::string, int64_t> seen;
  for (const auto& callback : learner.callbacks()) {
    const std::string name = callback->name();
    result.emplace_back(
        fmt::format("callbacks/{} {}", name, seen[name]++),
        callback.get());
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
  l.recorder->flush();  // its state is what has been read
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
      {"gradients",
       [&l] { return gradients(l); },
       [&l](const StateDict& state) { restore_gradients(l, state); }}};
  for (const auto& [name, callback] : named_callbacks(learner)) {
    parts.push_back(
        {name,
         [callback = callback] { return callback->state_dict(); },
         [callback = callback](const StateDict& state) {
           callback->load_state_dict(state);
         }});
  }
  parts.push_back({"random", random_state, restore_random_state});
  return parts;
}

void apply_model(Learner& learner, const Checkpoint& checkpoint) {
  // Both are checked before one of them changes anything.
  LoadPlan plan = plan_of_whole_model(learner, checkpoint.model);
  load_optimizer_state(learner, checkpoint.optimizer);
  apply(plan, learner);
  loop::invalidate_derived_state(parts_of(learner));
}

void apply_training(Learner& learner, const Checkpoint& checkpoint) {
  for (const StatePart& part : state_parts(learner)) {
    if (part.has_own_file()) continue;
    const StateDict saved = entries_under(checkpoint.training, part.name);
    if (!saved.is_empty()) part.restore(saved);
  }
}

}  // namespace tern
