#include "tern/learner/checkpoint/training_state.h"

#include <algorithm>
#include <map>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/learner/checkpoint/checkpoint_settings.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/precision/master_weights.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/model_weights.h"

namespace tern {

namespace {

torch::Tensor integer(int64_t value) {
  return torch::scalar_tensor(value, torch::kLong);
}

int64_t integer(const StateDict& state, const std::string& name) {
  const torch::Tensor* const value = state.find(name);
  TORCH_CHECK_VALUE(
      value && value->numel() == 1,
      fmt::format(
          "[Learner::resume] the checkpoint does not hold \"{}\"; expected one "
          "that SaveCheckpoint wrote.",
          name));
  return value->item<int64_t>();
}

// Older checkpoints have none.
int64_t integer_or_0(const StateDict& state, const std::string& name) {
  return state.contains(name) ? integer(state, name) : 0;
}

torch::Tensor on_cpu(const torch::Tensor& tensor) {
  return tensor.detach().to(
      tensor.options().device(torch::kCPU),
      /*non_blocking=*/false,
      /*copy=*/true);
}

// What the entries under "prefix/" are without it; all of them under "".
StateDict under(const StateDict& all, const std::string& prefix) {
  if (prefix.empty()) return all;
  StateDict result;
  for (const auto& entry : all) {
    if (entry.key().starts_with(prefix + "/")) {
      result.insert(entry.key().substr(prefix.size() + 1), entry.value());
    }
  }
  return result;
}

void put_under(
    StateDict& all,
    const std::string& prefix,
    const StateDict& state) {
  for (const auto& entry : state) {
    all.insert(
        prefix.empty() ? entry.key() : prefix + "/" + entry.key(),
        on_cpu(entry.value()));
  }
}

// Callbacks by "callbacks/EarlyStopping 0": the name, and which of that name in
// the order in which they run.
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

constexpr const char* kLogs = "logs";

}  // namespace

SavedProgress saved_progress(const Checkpoint& checkpoint) {
  return {
      integer(checkpoint.training, "epoch"),
      integer(checkpoint.training, "batch"),
      integer(checkpoint.training, "stop_training") != 0};
}

StateDict optimizer_state(Learner& learner) {
  StateDict mine =
      optim::named_state(learner.optimizer(), parameter_names(learner));
  const auto& shard = learner.parts().training_shard;
  return shard ? shard->gather_state(mine) : mine;
}

void load_optimizer_state(Learner& learner, const StateDict& state) {
  optim::load_named_state(learner.optimizer(), parameter_names(learner), state);
}

// ---- The one list of a Learner's state ----

namespace {

StatePart model_part(Learner& learner) {
  return {
      "model",
      [&learner] {
        StateDict state;
        for (const ModelTensor& t : fp32_tensors(learner)) {
          state.insert(t.name, t.tensor);
        }
        return state;
      },
      [&learner](const StateDict& state) {
        apply(plan_of_whole_model(learner, state), learner);
      }};
}

StatePart optimizer_part(Learner& learner) {
  return {
      "optimizer",
      [&learner] { return optimizer_state(learner); },
      [&learner](const StateDict& state) {
        load_optimizer_state(learner, state);
      }};
}

StatePart gradients_part(Learner& learner) {
  return {
      "gradients",
      [&learner] {
        StateDict state;
        for (const ModelTensor& p : learner.model().parameters()) {
          if (p.tensor.grad().defined()) state.insert(p.name, p.tensor.grad());
        }
        return state;
      },
      [&learner](const StateDict& state) {
        for (const ModelTensor& p : learner.model().parameters()) {
          if (const torch::Tensor* const grad = state.find(p.name)) {
            p.tensor.mutable_grad() = torch::empty_like(p.tensor).copy_(*grad);
          }
        }
      }};
}

StatePart random_part() {
  return {
      "random",
      [] {
        StateDict state;
        for (const auto& [name, generator] : default_generators()) {
          state.insert(name, generator.get_state());
        }
        return state;
      },
      [](const StateDict& state) {
        for (auto& [name, generator] : default_generators()) {
          const torch::Tensor* const saved = state.find(name);
          if (saved) generator.set_state(*saved);
        }
      }};
}

StatePart callback_part(const std::string& name, Callback* callback) {
  return {
      name,
      [callback] { return callback->state_dict(); },
      [callback](const StateDict& state) { callback->load_state_dict(state); }};
}

bool has_own_file(const StatePart& part) {
  return part.name == "model" || part.name == "optimizer";
}

StatePart progress_part(Learner& learner) {
  return {
      "",
      [&learner] {
        const TrainState& state = learner.parts().state;
        // An epoch that is not complete is begun once more, at its next batch.
        const bool in_epoch = learner.parts().place == Place::in_epoch;
        const bool at_end = learner.parts().place == Place::at_epoch_end;
        // What was asked from outside is not a part of the training.
        const bool stops =
            state.stop_training && !learner.parts().stop_requested;
        const std::vector<std::pair<const char*, int64_t>> numbers = {
            {"fits", learner.parts().fits_done},
            {"epoch", learner.parts().is_fitting ? state.epoch + at_end : 0},
            {"batch", in_epoch ? learner.parts().batches_done : 0},
            {"epochs_begun", learner.parts().epochs_begun - in_epoch},
            {"iteration", state.iteration},
            {"stop_training", stops ? 1 : 0},
            {"window_batches", learner.parts().window.batches()},
            {"window_samples", learner.parts().window.samples()}};
        StateDict result;
        for (const auto& [name, number] : numbers) {
          result.insert(name, integer(number));
        }
        return result;
      },
      [&learner](const StateDict& saved) {
        TrainState& state = learner.parts().state;
        state.epoch = integer(saved, "epoch");
        state.stop_training = integer(saved, "stop_training") != 0;
        state.iteration = integer(saved, "iteration");
        learner.parts().first_batch = integer(saved, "batch");
        learner.parts().epochs_begun = integer(saved, "epochs_begun");
        learner.parts().fits_done = integer(saved, "fits");
        learner.parts().window.restore(
            integer_or_0(saved, "window_batches"),
            integer_or_0(saved, "window_samples"));
      }};
}

}  // namespace

std::vector<StatePart> state_parts(Learner& learner) {
  learner.parts().recorder->flush();  // its state is what has been read
  std::vector<StatePart> parts = {
      model_part(learner),
      optimizer_part(learner),
      progress_part(learner),
      gradients_part(learner)};
  for (const auto& [name, callback] : named_callbacks(learner)) {
    parts.push_back(callback_part(name, callback));
  }
  parts.push_back(random_part());
  return parts;
}

Checkpoint capture_state(Learner& learner) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(
      !learner.parts().communicator || !learner.parts().window.is_open(),
      "[Learner::save_checkpoint] gradients are being accumulated, of which "
      "each rank has its own part; call it while state().accumulating is "
      "false.");
  const WholeMasters whole(learner);
  Checkpoint result;
  result.run = learner.parts().run_id;
  result.step = learner.state().iteration;
  result.settings = all_settings(learner);
  for (const StatePart& part : state_parts(learner)) {
    StateDict& to = part.name == "model"       ? result.model
                    : part.name == "optimizer" ? result.optimizer
                                               : result.training;
    put_under(to, has_own_file(part) ? "" : part.name, part.capture());
  }
  if (learner.state().is_trial) return result;
  for (const auto& [name, callback] : named_callbacks(learner)) {
    put_under(
        result.training,
        kLogs + ("/" + name),
        callback->log_state(learner));
  }
  return result;
}

std::vector<std::string> callback_differences(
    Learner& learner,
    const Checkpoint& checkpoint) {
  std::vector<std::string> result;
  std::vector<std::string> known;
  for (const auto& [name, callback] : named_callbacks(learner)) {
    known.push_back(name + "/");
    if (!callback->state_dict().is_empty() &&
        under(checkpoint.training, name).is_empty()) {
      result.push_back(fmt::format("{} was not there", name));
    }
  }
  std::string last;
  for (const auto& entry : checkpoint.training) {
    const std::string& key = entry.key();
    if (!key.starts_with("callbacks/")) continue;
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&key](const auto& name) {
          return key.starts_with(name);
        });
    const std::string name = key.substr(0, key.find('/', 10));
    if (!is_known && name != last) {
      result.push_back(fmt::format("{} is not there", name));
      last = name;
    }
  }
  return result;
}

StateDict saved_logs(const Checkpoint& checkpoint) {
  return under(checkpoint.training, kLogs);
}

std::optional<StateDict> take_saved_log(
    Learner& learner,
    const Callback& callback) {
  std::optional<StateDict>& all = learner.parts().resumed_logs;
  if (!all) return std::nullopt;
  for (const auto& [name, known] : named_callbacks(learner)) {
    if (known != &callback) continue;
    StateDict taken = under(*all, name);
    for (const auto& entry : taken) all->erase(name + "/" + entry.key());
    return taken;
  }
  return StateDict();
}

void apply_model(Learner& learner, const Checkpoint& checkpoint) {
  // Both are checked before one of them changes anything.
  LoadPlan plan = plan_of_whole_model(learner, checkpoint.model);
  load_optimizer_state(learner, checkpoint.optimizer);
  apply(plan, learner);
  loop::state_was_replaced(learner.parts());
}

void apply_training(Learner& learner, const Checkpoint& checkpoint) {
  for (const StatePart& part : state_parts(learner)) {
    if (has_own_file(part)) continue;
    const StateDict saved = under(checkpoint.training, part.name);
    if (!saved.is_empty()) part.restore(saved);
  }
}

}  // namespace tern
