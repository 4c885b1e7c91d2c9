#include "tern/learner/weights/model_weights.h"

#include <torch/types.h>

#include "tern/learner/loop.h"
#include "tern/learner/precision/master_weights.h"

namespace tern {

std::vector<ModelTensor> load_targets(const Learner& learner) {
  std::vector<ModelTensor> targets = learner.parts().model.state();
  const auto masters = master_weights(learner);
  if (!masters) return targets;
  const auto& shard = learner.parts().training_shard;
  TORCH_CHECK(
      !shard || !shard->has_released_masters(),
      "[Learner] while fit runs, each rank has its part of the fp32 weights "
      "alone; read them before or after it, or call save or save_checkpoint "
      "on all ranks.");
  for (ModelTensor& t : targets) t.tensor = masters->of(t.tensor);
  return targets;
}

std::vector<ModelTensor> fp32_tensors(const Learner& learner) {
  std::vector<ModelTensor> tensors = load_targets(learner);
  const bool is_16_bit = master_weights(learner) != nullptr;
  for (ModelTensor& t : tensors) {
    t.tensor = t.tensor.detach();
    if (is_16_bit && c10::isReducedFloatingType(t.tensor.scalar_type())) {
      t.tensor = t.tensor.to(torch::kFloat);
    }
  }
  return tensors;
}

void apply(const LoadPlan& plan, Learner& learner) {
  plan.apply();
  if (const auto masters = master_weights(learner)) {
    masters->copy_masters_to_weights();
  }
}

WholeMasters::WholeMasters(const Learner& learner) {
  TrainingShard* const shard = learner.parts().training_shard.get();
  if (!shard || !shard->has_released_masters()) return;
  shard_ = shard;
  shard_->gather_masters();
}

WholeMasters::~WholeMasters() {
  if (shard_) shard_->release_masters();
}

StateDict Learner::state_dict() const {
  StateDict state;
  for (const ModelTensor& t : fp32_tensors(*this)) {
    state.insert(t.name, t.tensor);
  }
  return state;
}

LoadReport Learner::load_state_dict(
    const StateDict& state,
    const LoadOptions& options) {
  LoadPlan plan = plan_load(load_targets(*this), state, options);
  apply(plan, *this);
  loop::state_was_replaced(*parts_);
  return std::move(plan.report);
}

}  // namespace tern
