#include "tern/learner/optim/named_state.h"

#include <memory>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>
#include <fmt/ranges.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tern/kernels/check.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/optim/combined_optimizer.h"
#include "tern/learner/optim/fused_optimizer.h"
#include "tern/learner/sparse_entries.h"

namespace tern::optim {

namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

// One entry of a parameter's state: a tensor, or a step count that LibTorch
// keeps on the host.
struct Field {
  std::string name;
  torch::Tensor* tensor;
  int64_t* steps = nullptr;
};

template <class State>
std::vector<Field> adam_fields(State& state) {
  return {
      {"step", nullptr, &state.step()},
      {"exp_avg", &state.exp_avg()},
      {"exp_avg_sq", &state.exp_avg_sq()},
      {"max_exp_avg_sq", &state.max_exp_avg_sq()}};
}

std::vector<Field> fields(OptimizerParamState& state) {
  using namespace torch::optim;
  if (auto* fused = dynamic_cast<FusedParamState*>(&state)) {
    std::vector<Field> result;
    for (auto& [name, tensor] : fused->tensors()) {
      result.push_back({name, tensor});
    }
    return result;
  }
  if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(&state)) {
    return adam_fields(*adam);
  }
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state)) {
    return adam_fields(*adamw);
  }
  if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(&state)) {
    return {{"momentum_buffer", &sgd->momentum_buffer()}};
  }
  if (auto* rmsprop = dynamic_cast<RMSpropParamState*>(&state)) {
    return {
        {"step", nullptr, &rmsprop->step()},
        {"square_avg", &rmsprop->square_avg()},
        {"momentum_buffer", &rmsprop->momentum_buffer()},
        {"grad_avg", &rmsprop->grad_avg()}};
  }
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) {
    return {{"step", nullptr, &adagrad->step()}, {"sum", &adagrad->sum()}};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "[named_state] the state of this optimizer cannot be saved; expected a "
      "fused optimizer, or torch::optim's SGD, Adam, AdamW, RMSprop or "
      "Adagrad.");
}

template <class Options, class State>
std::unique_ptr<OptimizerParamState> state_for(const Optimizer& optimizer) {
  const bool fits = dynamic_cast<const Options*>(&optimizer.defaults());
  return fits ? std::make_unique<State>() : nullptr;
}

std::unique_ptr<OptimizerParamState> make_state(const Optimizer& optimizer) {
  using namespace torch::optim;
  if (auto* fused = dynamic_cast<const FusedOptimizer*>(&optimizer)) {
    return fused->new_state();
  }
  for (const auto make :
       {state_for<AdamOptions, torch::optim::AdamParamState>,
        state_for<AdamWOptions, AdamWParamState>,
        state_for<SGDOptions, torch::optim::SGDParamState>,
        state_for<RMSpropOptions, RMSpropParamState>,
        state_for<AdagradOptions, AdagradParamState>}) {
    if (auto state = make(optimizer)) return state;
  }
  return nullptr;
}

// State as created by the constructor. A step requires it for each parameter.
std::unique_ptr<OptimizerParamState> initial_adagrad_state(
    const Optimizer& optimizer,
    const torch::Tensor& param) {
  const auto* const options =
      dynamic_cast<const torch::optim::AdagradOptions*>(&optimizer.defaults());
  if (!options) return nullptr;
  auto state = std::make_unique<torch::optim::AdagradParamState>();
  state->step(0);
  state->sum(
      torch::full_like(param.detach(), options->initial_accumulator_value()));
  return state;
}

const std::string& name_of(
    const ParameterNames& names,
    const torch::Tensor& param) {
  const auto found = names.find(param.unsafeGetTensorImpl());
  TERN_CHECK_VALUE(
      found != names.end(),
      "[named_state] the optimizer owns a parameter of shape [{}] that the "
      "model does not have; expected only parameters of the model.",
      fmt::join(param.sizes(), ", "));
  return found->second;
}

struct Hyper {
  const char* name;
  double (*get)(const torch::optim::OptimizerOptions&);
  void (*set)(torch::optim::OptimizerOptions&, double);
};

const Hyper kHypers[] = {
    {"lr",
     [](const torch::optim::OptimizerOptions& options) {
       return options.get_lr();
     },
     [](torch::optim::OptimizerOptions& options, double value) {
       options.set_lr(value);
     }},
    {"momentum", momentum, set_momentum},
    {"weight_decay", weight_decay, set_weight_decay}};

using Made = std::vector<
    std::pair<c10::TensorImpl*, std::unique_ptr<OptimizerParamState>>>;

// Reads one parameter's state; adds the number of entries that it read to
// `used`.
void read_state(
    const Optimizer& optimizer,
    const torch::Tensor& param,
    const std::string& name,
    const StateDict& state,
    Made& made,
    size_t& used) {
  auto fresh = make_state(optimizer);
  if (!fresh) return;
  bool is_there = false;
  for (Field& field : fields(*fresh)) {
    const std::string key = name + "/" + field.name;
    const torch::Tensor value = find_entry(state, key, param.sizes(), &used);
    if (!value.defined()) continue;
    is_there = true;
    if (!field.tensor) {
      *field.steps = value.item<int64_t>();
      continue;
    }
    const bool is_8bit = value.scalar_type() == torch::kByte &&
                         value.dim() == 1 &&
                         value.numel() == moment_8bit_size(param);
    // The momentum of a sparse gradient keeps its layout.
    const bool is_like_param =
        value.dim() != 0 && !is_8bit && !value.is_sparse();
    TERN_CHECK_VALUE(
        !is_like_param || value.sizes() == param.sizes(),
        "[load_named_state] \"{}\" has shape [{}], but its parameter [{}]; "
        "expected the state of the same model.",
        key,
        fmt::join(value.sizes(), ", "),
        fmt::join(param.sizes(), ", "));
    // Uses the layout that a step creates, which the fused kernels expect.
    *field.tensor =
        is_like_param
            ? torch::empty_like(param, value.scalar_type())
                  .requires_grad_(false)
                  .copy_(value)
            : value.to(param.device(), /*non_blocking=*/false, /*copy=*/true);
  }
  if (!is_there) fresh = initial_adagrad_state(optimizer, param);
  if (fresh) made.emplace_back(param.unsafeGetTensorImpl(), std::move(fresh));
}

}  // namespace

std::string class_name(const torch::optim::Optimizer& optimizer) {
  if (const auto* all = dynamic_cast<const CombinedOptimizer*>(&optimizer)) {
    std::vector<std::string> names;
    for (const auto& one : all->all()) names.push_back(class_name(*one));
    return fmt::format("{}", fmt::join(names, ", "));
  }
  return c10::demangle(typeid(optimizer).name());
}

ParameterNames numbered_names(const Optimizer& optimizer) {
  ParameterNames names;
  for (const torch::Tensor& param : parameters_of(optimizer)) {
    names.emplace(param.unsafeGetTensorImpl(), std::to_string(names.size()));
  }
  return names;
}

StateDict named_state(Optimizer& optimizer, const ParameterNames& names) {
  StateDict result;
  const auto& groups = optimizer.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const Hyper& hyper : kHypers) {
      result.insert(
          fmt::format("{}/{}", i, hyper.name),
          torch::scalar_tensor(hyper.get(groups[i].options()), torch::kDouble));
    }
    for (const torch::Tensor& param : groups[i].params()) {
      const std::string& name = name_of(names, param);
      const auto found = optimizer.state().find(param.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      for (const Field& field : fields(*found->second)) {
        const std::string key = name + "/" + field.name;
        if (!field.tensor) {
          result.insert(key, torch::scalar_tensor(*field.steps, torch::kLong));
        } else if (field.tensor->defined()) {
          insert_entry(result, key, *field.tensor);
        }
      }
    }
  }
  return result;
}

void load_named_state(
    Optimizer& optimizer,
    const ParameterNames& names,
    const StateDict& state) {
  const torch::NoGradGuard no_grad;
  const auto* const combined = dynamic_cast<CombinedOptimizer*>(&optimizer);
  auto& groups = optimizer.param_groups();
  Made made;
  std::vector<double> values;
  size_t used = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const Hyper& hyper : kHypers) {
      const std::string key = fmt::format("{}/{}", i, hyper.name);
      const torch::Tensor* const value = state.find(key);
      TERN_CHECK_VALUE(
          value,
          "[load_named_state] \"{}\" is missing; the state is from an "
          "optimizer with fewer parameter groups than {}. Split the model as "
          "it was split when the state was saved.",
          key,
          groups.size());
      values.push_back(value->item<double>());
      ++used;
    }
    const Optimizer& owner = combined ? combined->of_group(i) : optimizer;
    for (const torch::Tensor& param : groups[i].params()) {
      read_state(owner, param, name_of(names, param), state, made, used);
    }
  }
  TERN_CHECK_VALUE(
      used == state.size(),
      "[load_named_state] {} of {} entries do not belong to this optimizer; "
      "expected the state of the same kind of optimizer over the same "
      "parameters.",
      state.size() - used,
      state.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t k = 0; k < std::size(kHypers); ++k) {
      kHypers[k].set(groups[i].options(), values[i * std::size(kHypers) + k]);
    }
  }
  optimizer.state().clear();
  for (auto& [param, fresh] : made) optimizer.state()[param] = std::move(fresh);
}

}  // namespace tern::optim
