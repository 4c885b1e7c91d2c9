#include "tern/learner/optim/layer_groups.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/loop.h"
#include "tern/learner/module_names.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"

namespace tern {

namespace {

// True if the optimizer has exactly these parameters, in these groups.
bool has_groups(
    const torch::optim::Optimizer& optimizer,
    const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  return std::ranges::equal(
      optimizer.param_groups(),
      groups,
      [](const auto& a, const auto& b) {
        return std::ranges::equal(
            a.params(),
            b.params(),
            [](const auto& p, const auto& q) { return p.is_same(q); });
      });
}

// If normalization layers and biases have no weight decay, they form a separate
// parameter group. Otherwise a layer group is one parameter group, which steps
// in one kernel.
std::vector<torch::optim::OptimizerParamGroup> make_param_groups(
    LearnerParts& l) {
  std::vector<torch::optim::OptimizerParamGroup> param_groups;
  l.groups.param_group_kinds.clear();
  for (size_t i = 0; i < l.groups.parameters.size(); ++i) {
    for (const bool spares_decay : {false, true}) {
      Tensors params;
      for (const ModelTensor& p : l.groups.parameters[i]) {
        const bool is_apart = !l.options.bn_weight_decay &&
                              (p.layer != LayerKind::other || p.is_bias());
        if (is_apart != spares_decay) continue;
        params.push_back(
            l.stepped_weights ? l.stepped_weights->of(p.tensor) : p.tensor);
      }
      if (params.empty()) continue;
      param_groups.emplace_back(std::move(params));
      l.groups.param_group_kinds.push_back(
          {static_cast<int64_t>(i), spares_decay});
    }
  }
  return param_groups;
}

std::unique_ptr<torch::optim::Optimizer> new_optimizer(LearnerParts& l) {
  const auto groups = make_param_groups(l);
  if (!l.options.optimizer) {
    l.options.optimizer = default_optimizer(l.options.true_weight_decay);
  }
  auto made = l.options.optimizer(groups);
  TORCH_CHECK_VALUE(
      made && has_groups(*made, groups),
      "[Learner] the optimizer factory returned no optimizer, or one over "
      "different parameters; expected an optimizer over the groups passed to "
      "it, which in mixed precision hold the fp32 master weights.");
  return made;
}

// Sets them as specified by LearnerOptions.
void set_weight_decays(
    const LearnerParts& l,
    torch::optim::Optimizer& optimizer) {
  for (size_t i = 0; i < l.groups.param_group_kinds.size(); ++i) {
    const bool decays = !l.groups.param_group_kinds[i].spares_decay;
    optim::set_weight_decay(
        optimizer.param_groups()[i].options(),
        decays ? l.options.weight_decay : 0);
  }
}

// Creates the optimizer and sets its weight decay, once. Each fit sets the
// learning rates.
void make_optimizer(LearnerParts& l) {
  auto made = new_optimizer(l);
  l.groups.has_initial_state = !made->state().empty();
  if (auto* decoupled =
          dynamic_cast<optim::DecoupledWeightDecay*>(made.get())) {
    decoupled->decoupled_weight_decay(l.options.true_weight_decay);
  }
  set_weight_decays(l, *made);
  l.optimizer = std::move(made);
  l.self->set_learning_rates({});
}

// Gives the optimizer the parameters of the changed layer groups. The optimizer
// remains the same object and keeps the state and hyperparameters of the
// parameters that it already had.
void follow_groups(LearnerParts& l) {
  const std::vector<ParamGroupKind> old_kinds = l.groups.param_group_kinds;
  const auto old_groups = l.optimizer->param_groups();
  const auto made = new_optimizer(l);
  set_weight_decays(l, *made);
  auto& groups = made->param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    const ParamGroupKind& kind = l.groups.param_group_kinds[i];
    for (size_t j = 0; j < old_kinds.size(); ++j) {
      if (old_kinds[j].layer_group != kind.layer_group) continue;
      const torch::optim::OptimizerOptions& old = old_groups[j].options();
      if (old_kinds[j].spares_decay == kind.spares_decay) {
        groups[i].set_options(old.clone());
        break;
      }
      // The first group of this kind in its layer group.
      groups[i].options().set_lr(old.get_lr());
      optim::set_momentum(groups[i].options(), optim::momentum(old));
    }
  }
  std::set<const void*> trained;
  for (const auto& group : groups) {
    for (const torch::Tensor& param : group.params()) {
      trained.insert(param.unsafeGetTensorImpl());
    }
  }
  // Keeps the state that the constructor created for new parameters.
  auto& state = made->state();
  for (auto& [param, known] : l.optimizer->state()) {
    if (trained.contains(param)) state[param] = std::move(known);
  }
  std::swap(l.optimizer->state(), state);
  std::swap(l.optimizer->param_groups(), groups);
}

}  // namespace

void optim::clear_state(LearnerParts& l) {
  l.optimizer->state().clear();
  if (!l.groups.has_initial_state) return;
  std::swap(l.optimizer->state(), new_optimizer(l)->state());
}

OptimizerFactory default_optimizer(bool true_weight_decay) {
  if (!true_weight_decay) {
    return optimizer<optim::Adam>(
        torch::optim::AdamOptions().betas({0.9, 0.99}));
  }
  return optimizer<optim::AdamW>(
      torch::optim::AdamWOptions().betas({0.9, 0.99}));
}

OptimizerFactory ranger() {
  return optimizer<optim::RAdam>(
      optim::RAdamOptions().betas({0.95, 0.99}).eps(1e-6),
      optim::FusedOptions{.lookahead = {.k = 6}});
}

Learner& Learner::split(const std::vector<std::string>& first_modules) {
  TORCH_CHECK_VALUE(
      !parts_->optimizer && parts_->groups.own_lr.empty(),
      "[Learner::split] the optimizer exists already, or MultiOptimizer "
      "defines the layer groups; expected split before the first fit, without "
      "MultiOptimizer.");
  for (size_t i = 1; i < first_modules.size(); ++i) {
    TERN_CHECK_VALUE(
        first_modules[i] != first_modules[i - 1],
        "[Learner::split] module \"{}\" is named twice; expected distinct "
        "names, in the order of the model.",
        first_modules[i]);
  }
  std::vector<std::vector<ModelTensor>> groups(1);
  size_t next = 0;
  for (const ModelTensor& parameter : parts_->model.parameters()) {
    if (next < first_modules.size() &&
        is_in_module(parameter.name, first_modules[next])) {
      ++next;
      if (!groups.back().empty()) groups.emplace_back();
    }
    groups.back().push_back(parameter);
  }
  TERN_CHECK_VALUE(
      next == first_modules.size(),
      "[Learner::split] no parameter of module \"{}\" comes after the "
      "parameters of the preceding modules; expected names of modules in the "
      "order of the model, such as \"layer3\".",
      first_modules[std::min(next, first_modules.size() - 1)]);
  parts_->groups.parameters = std::move(groups);
  return *this;
}

Learner& Learner::freeze() {
  return freeze_to(-1);
}
Learner& Learner::unfreeze() {
  return freeze_to(0);
}

Learner& Learner::freeze_to(int64_t group) {
  const auto groups = parts_->groups.size();
  TORCH_CHECK_INDEX(
      group >= -groups && group < groups,
      fmt::format(
          "[Learner::freeze_to] group is {}, but the model has {} layer "
          "groups; expected {} to {}.",
          group,
          groups,
          -groups,
          groups - 1));
  loop::attach_scaled_gradients(*parts_);
  if (!parts_->state.is_fitting) loop::follow_model(*parts_);
  const int64_t first_trained = group < 0 ? groups + group : group;
  std::set<std::string>& frozen = parts_->groups.frozen;
  // If no parameter is trainable, the call must unfreeze the model.
  const bool unfreezes_all =
      parts_->options.unfreeze_all ||
      (frozen.empty() && loop::trained_parameters(*parts_) == 0);
  const auto change = [&] {
    for (int64_t i = 0; i < groups; ++i) {
      for (ModelTensor& parameter : parts_->groups.parameters[i]) {
        const bool is_norm = parameter.layer != LayerKind::other;
        const bool learns =
            i >= first_trained || (is_norm && parts_->options.train_bn);
        if (learns) {
          const bool was_frozen_here = frozen.erase(parameter.name) > 0;
          if (was_frozen_here || unfreezes_all) {
            parameter.tensor.requires_grad_();
          }
          continue;
        }
        if (parameter.tensor.requires_grad()) frozen.insert(parameter.name);
        parameter.tensor.requires_grad_(false);
        parameter.tensor.mutable_grad().reset();
        if (!parts_->stepped_weights) continue;
        parts_->stepped_weights->of(parameter.tensor).mutable_grad().reset();
      }
    }
  };
  if (parts_->step.runner) {
    parts_->step.runner->change_frozen(change);
  } else {
    change();
  }
  loop::detach_scaled_gradients(*parts_);
  if (parts_->optimizer && parts_->options.freeze_clears_optimizer) {
    optim::clear_state(*parts_);
  }
  if (parts_->step.runner) parts_->step.runner->forget();
  parts_->record_call(
      first_trained == 0            ? "unfreeze()"
      : first_trained == groups - 1 ? "freeze()"
                                    : fmt::format("freeze_to({})", group));
  return *this;
}

std::vector<double> Learner::learning_rates() {
  std::vector<double> rates(parts_->groups.parameters.size());
  auto& param_groups = optimizer().param_groups();
  for (size_t i = 0; i < param_groups.size(); ++i) {
    rates[parts_->groups.param_group_kinds[i].layer_group] =
        param_groups[i].options().get_lr();
  }
  return rates;
}

torch::optim::Optimizer& Learner::optimizer() {
  if (!parts_->optimizer) {
    make_optimizer(*parts_);
  } else if (parts_->groups.have_changed) {
    follow_groups(*parts_);
  }
  parts_->groups.have_changed = false;
  return *parts_->optimizer;
}

}  // namespace tern
