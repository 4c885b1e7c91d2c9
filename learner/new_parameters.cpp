// Makes sure that all registered parameters are trained, even if modules are
// added, replaced or removed after the Learner was created.

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

std::string quoted(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const std::vector<std::string> first(
      names.begin(),
      names.begin() + static_cast<int64_t>(std::min(kMost, names.size())));
  std::string text = fmt::format("\"{}\"", fmt::join(first, "\", \""));
  if (names.size() > kMost) {
    text += fmt::format(" and {} more", names.size() - kMost);
  }
  return text;
}

// Names of parameters that are not in a layer group, and of parameters that are
// in a layer group but no longer in the model.
struct Changes {
  std::vector<std::string> added, removed;

  bool is_empty() const { return added.empty() && removed.empty(); }
  std::string to_string() const {
    return added.empty() ? quoted(removed) + " are missing"
                         : quoted(added) + " are new";
  }
};

Changes changes_of(const LearnerParts& l) {
  std::unordered_set<const c10::TensorImpl*> known, there;
  for (const auto& group : l.groups.parameters) {
    for (const ModelTensor& p : group) {
      known.insert(p.tensor.unsafeGetTensorImpl());
    }
  }
  Changes changes;
  for (const ModelTensor& p : l.model.parameters()) {
    there.insert(p.tensor.unsafeGetTensorImpl());
    // MultiOptimizer's parts may omit frozen parameters.
    if (!l.groups.own_lr.empty() && !p.tensor.requires_grad()) continue;
    if (!known.contains(p.tensor.unsafeGetTensorImpl())) {
      changes.added.push_back(p.name);
    }
  }
  for (const auto& group : l.groups.parameters) {
    for (const ModelTensor& p : group) {
      if (!there.contains(p.tensor.unsafeGetTensorImpl())) {
        changes.removed.push_back(p.name);
      }
    }
  }
  return changes;
}

// Assigns each parameter to the group of the old parameter with its name, or
// else to the group of the parameter before it.
void regroup(LearnerParts& l) {
  std::map<std::string, size_t> group_of;
  for (size_t i = 0; i < l.groups.parameters.size(); ++i) {
    for (const ModelTensor& p : l.groups.parameters[i]) group_of[p.name] = i;
  }
  std::vector<std::vector<ModelTensor>> groups(l.groups.parameters.size());
  size_t last = 0;
  for (const ModelTensor& p : l.model.parameters()) {
    const auto same = group_of.find(p.name);
    if (same != group_of.end()) last = same->second;
    groups[last].push_back(p);
  }
  l.groups.parameters = std::move(groups);
  l.groups.have_changed = true;
}

}  // namespace

void loop::follow_model(LearnerParts& l) {
  const Changes changes = changes_of(l);
  if (changes.is_empty()) return;
  const char* const owner = !l.groups.own_lr.empty() ? "MultiOptimizer"
                            : l.ranks.training_shard ? "to_distributed"
                            : l.step.is_parallel     ? "to_parallel"
                                                     : nullptr;
  TERN_CHECK_VALUE(
      !owner,
      "[Learner] the model's parameters have changed: {0}; expected the "
      "parameters that {1} started with. Add or replace modules before you use "
      "{1}.",
      changes.to_string(),
      owner);
  l.model.to(l.data.device);
  // Creates new master weights with the values of the old master weights.
  auto* const policy =
      l.stepped_weights ? dynamic_cast<Callback*>(l.precision) : nullptr;
  if (policy) policy->on_remove(*l.self);
  regroup(l);
  if (l.optimizer) l.self->optimizer();
  if (policy) policy->on_add(*l.self);
  if (l.step.runner) l.step.runner->forget();
}

void loop::follow_first_forward(LearnerParts& l) {
  if (l.step.knows_parameters || l.step.part_loss) return;
  const Changes changes = changes_of(l);
  if (changes.is_empty()) return;
  const char* const why =
      l.state.is_dry_run  ? "a dry run such as lr_find cannot undo this change"
      : l.stepped_weights ? "the 16-bit model has no master weights for them"
      : l.step.runner     ? "to_cuda_graph and MultiOptimizer do not allow that"
      : l.ranks.communicator ? "the ranks do not share such a change"
                             : nullptr;
  TERN_CHECK_VALUE(
      !why,
      "[Learner::fit] the first forward pass has changed the model's "
      "parameters: {}; {}. Run the model's forward once before calling fit.",
      changes.to_string(),
      why);
  follow_model(l);
  l.position.trained_at_begin = trained_flags(l);
  l.position.fit_settings["trained parameters"] =
      std::to_string(trained_parameters(l));
  invalidate_derived_state(l);
}

void loop::look_at_first_gradients(LearnerParts& l) {
  if (std::exchange(l.step.knows_parameters, true) || l.step.part_loss) return;
  if (!l.options.warn_unused_parameters || l.state.is_dry_run) return;
  std::vector<std::string> unused;
  int64_t trained = 0;
  for (const ModelTensor& p : l.model.parameters()) {
    if (!p.tensor.requires_grad()) continue;
    ++trained;
    if (!p.tensor.grad().defined()) unused.push_back(p.name);
  }
  if (unused.empty()) return;
  l.options.sink->warning(fmt::format(
      "[Learner::fit] the loss of the first batch does not depend on {} of {} "
      "parameters, which have no gradient: {}. If you replaced a module, "
      "register the new one with replace_module. "
      "LearnerOptions::warn_unused_parameters = false turns this warning off.",
      unused.size(),
      trained,
      quoted(unused)));
}

}  // namespace tern
