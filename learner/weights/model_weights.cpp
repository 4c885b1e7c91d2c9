#include "tern/learner/weights/model_weights.h"

#include <algorithm>
#include <ranges>
#include <unordered_set>

#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/text.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

// Prefixes that PyTorch's wrappers add to names: DataParallel, torch.compile.
constexpr const char* kWrappers[] = {"module.", "_orig_mod."};
constexpr size_t kNamesShown = 5;

std::string shape_and_type(const torch::Tensor& tensor) {
  return fmt::format(
      "[{}] {}",
      fmt::join(tensor.sizes(), ", "),
      c10::toString(tensor.scalar_type()));
}

std::string prefix_of(
    const StateDict& state,
    const std::string& wanted,
    const std::vector<ModelTensor>& model) {
  if (!wanted.empty() || state.is_empty()) return wanted;
  // Wrappers may be nested: DistributedDataParallel(torch.compile(net)).
  std::string prefix;
  for (bool is_found = true; is_found;) {
    is_found = false;
    for (const std::string wrapper : kWrappers) {
      const auto has = [&](const std::string& name) {
        return name.starts_with(wrapper);
      };
      const auto goes_on = [&](const std::string& name) {
        return name.starts_with(prefix + wrapper);
      };
      if (std::ranges::all_of(state.keys(), goes_on) &&
          std::ranges::none_of(model, has, &ModelTensor::name)) {
        prefix += wrapper;
        is_found = true;
      }
    }
  }
  return prefix;
}

bool fits(const torch::Tensor& given, const torch::Tensor& target) {
  return given.defined() && given.sizes() == target.sizes() &&
         c10::canCast(given.scalar_type(), target.scalar_type());
}

// True if this tensor may be missing from a state dict: PyTorch before 0.4 did
// not count batches, and Python's BatchNorm accepts that too.
bool may_be_missing(const ModelTensor& item) {
  return item.layer != LayerKind::other &&
         item.name.ends_with("num_batches_tracked");
}

LoadPlan match_names(
    const std::vector<ModelTensor>& model,
    const StateDict& state,
    const std::string& prefix) {
  StateDict given;
  for (const auto& item : state) {
    if (!item.key().starts_with(prefix)) continue;
    given.insert(item.key().substr(prefix.size()), item.value());
  }

  LoadPlan plan;
  std::unordered_set<std::string> known;
  std::unordered_set<c10::TensorImpl*> reached;
  for (const ModelTensor& item : model) {
    known.insert(item.name);
    const torch::Tensor* const value = given.find(item.name);
    if (!value) continue;
    reached.insert(item.tensor.unsafeGetTensorImpl());
    if (fits(*value, item.tensor)) {
      plan.targets.push_back(item.tensor);
      plan.values.push_back(*value);
    } else {
      plan.report.mismatched.push_back(
          {item.name,
           value->defined() ? shape_and_type(*value) : "an undefined tensor",
           shape_and_type(item.tensor)});
    }
  }
  plan.report.loaded = static_cast<int64_t>(plan.targets.size());
  for (const ModelTensor& item : model) {
    if (!given.contains(item.name) && !may_be_missing(item) &&
        !reached.contains(item.tensor.unsafeGetTensorImpl())) {
      plan.report.missing.push_back(item.name);
    }
  }
  for (const std::string& name : given.keys()) {
    if (!known.contains(name)) plan.report.unexpected.push_back(name);
  }
  return plan;
}

void check_report(const LoadReport& report, const LoadOptions& options) {
  std::string cure;
  const auto add = [&](bool wrong, const char* advice) {
    if (wrong) cure += (cure.empty() ? "" : ", ") + std::string(advice);
  };
  add(options.strict && !report.missing.empty() && report.loaded > 0,
      "{.strict = false} keeps the model's values for missing tensors");
  add(options.strict && !report.unexpected.empty() && report.loaded > 0,
      "{.strict = false} ignores unexpected tensors");
  add(!options.ignore_mismatched_sizes && !report.mismatched.empty(),
      "{.ignore_mismatched_sizes = true} keeps the model's values for tensors "
      "of a different shape");
  add(report.loaded == 0 && !report.is_complete(),
      "check the prefix of the names, and that the file belongs to this model");
  TERN_CHECK_VALUE(
      cure.empty(),
      "[Model::load_state_dict] {}; expected the names and shapes of the "
      "model. Nothing was loaded; {}.",
      report.to_string(),
      cure);
}

}  // namespace

std::string LoadReport::to_string() const {
  std::string all = fmt::format("{} loaded", loaded);
  // ", 2 missing (fc.weight, fc.bias)"
  const auto add = [&](const auto& names, const char* what, const auto& text) {
    if (names.empty()) return;
    std::vector<std::string> shown;
    for (const auto& name : names | std::views::take(kNamesShown)) {
      shown.push_back(text(name));
    }
    if (shown.size() < names.size()) shown.emplace_back("...");
    all +=
        fmt::format(", {} {} ({})", names.size(), what, fmt::join(shown, ", "));
  };
  // Names may come from an untrusted file.
  const auto safe = [](const std::string& name) { return printable(name); };
  add(missing, "missing", safe);
  add(unexpected, "unexpected", safe);
  add(mismatched, "with mismatched sizes", [](const Mismatch& m) {
    return printable(m.name) + " is " + m.given + "; expected " + m.expected;
  });
  add(skipped, "skipped", safe);
  if (unverified) all += ", from a file without checksums";
  return all;
}

StateDict Model::state_dict() const {
  StateDict state;
  for (const ModelTensor& item : impl_->state()) {
    state.insert(item.name, item.tensor.detach());
  }
  return state;
}

LoadPlan plan_load(
    const std::vector<ModelTensor>& model,
    const StateDict& state,
    const LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  LoadPlan plan =
      match_names(model, state, prefix_of(state, options.prefix, model));
  plan.report.unverified = state.unverified;
  check_report(plan.report, options);
  // Allocates memory, which can fail, before any tensor is written.
  for (size_t i = 0; i < plan.values.size(); ++i) {
    plan.values[i] = plan.values[i].to(plan.targets[i].options());
  }
  return plan;
}

void LoadPlan::apply() const {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < values.size(); ++i) targets[i].copy_(values[i]);
}

LoadReport Model::load_state_dict(
    const StateDict& state,
    const LoadOptions& options) {
  LoadPlan plan = plan_load(impl_->state(), state, options);
  plan.apply();
  return std::move(plan.report);
}

// ---- A Learner's weights ----

std::vector<ModelTensor> load_targets(const Learner& learner) {
  std::vector<ModelTensor> targets = parts_of(learner).model.state();
  const auto masters = master_weights(learner);
  if (!masters) return targets;
  const auto& shard = parts_of(learner).ranks.training_shard;
  TORCH_CHECK(
      !shard || !shard->has_released_masters(),
      "[Learner] while fit runs, each rank holds only its part of the fp32 "
      "weights; read them before or after fit, or call save or save_checkpoint "
      "on all ranks.");
  for (ModelTensor& t : targets) t.tensor = masters->exact(t.tensor);
  return targets;
}

std::vector<ModelTensor> fp32_tensors(const Learner& learner) {
  std::vector<ModelTensor> tensors = load_targets(learner);
  const auto masters = master_weights(learner);
  const auto of_model = parts_of(learner).model.state();
  for (size_t i = 0; i < tensors.size(); ++i) {
    torch::Tensor& tensor = tensors[i].tensor;
    // The fp32 copy of a 16-bit buffer changes when the model writes to the
    // buffer.
    const bool is_of_buffer =
        masters && !tensor.is_same(masters->of(of_model[i].tensor));
    tensor = is_of_buffer ? tensor.clone() : tensor.detach();
    if (masters && c10::isReducedFloatingType(tensor.scalar_type())) {
      tensor = tensor.to(torch::kFloat);
    }
  }
  return tensors;
}

void apply(const LoadPlan& plan, Learner& learner) {
  plan.apply();
  if (const auto masters = master_weights(learner)) {
    masters->copy_to_model();
  }
}

WholeMasters::WholeMasters(const Learner& learner) {
  TrainingShard* const shard = parts_of(learner).ranks.training_shard.get();
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
  loop::replace_weight_copies(*parts_);
  loop::invalidate_derived_state(*parts_);
  return std::move(plan.report);
}

}  // namespace tern
