#include "tern/learner/optim/fused_optimizer.h"

#include <fmt/ranges.h>
#include <torch/serialize/archive.h>

#include "tern/kernels/check.h"

namespace tern::optim {

namespace {

constexpr const char* kDecoupledKey = "decoupled_weight_decay";

// Sets entry `i` of `list` to `tensor`; costs nothing if it already is that
// tensor.
void put(Tensors& list, size_t i, const torch::Tensor& tensor) {
  if (i == list.size()) {
    list.push_back(tensor);
  } else if (!list[i].is_same(tensor)) {
    list[i] = tensor;
  }
}

at::TensorList first(const Tensors& list, size_t count) {
  return {list.data(), std::min(count, list.size())};
}

// Returns `scalar` on `device`, without a copy if it is already there.
std::optional<torch::Tensor> on(
    torch::Device device,
    const std::optional<torch::Tensor>& scalar) {
  if (!scalar || !scalar->defined()) return std::nullopt;
  return scalar->device() == device ? scalar
                                    : scalar->to(device, /*non_blocking=*/true);
}

/// A group's hyperparameters in the form in which its kernel reads them from
/// memory.
template <class Args>
torch::Tensor rates_of(const Args& args, torch::Device device) {
  return std::visit([&](const auto& a) { return to_tensor(a, device); }, args);
}

/// Returns the number of moments that a step keeps.
template <class Args>
size_t moments_of(const Args& args) {
  if (const auto* sgd = std::get_if<FusedSgdArgs>(&args)) {
    return sgd->momentum == 0 ? 0 : 1;
  }
  return std::get<FusedAdamArgs>(args).amsgrad ? 3 : 2;
}

std::optional<torch::Tensor> if_defined(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

Tensors parameters_of(const torch::optim::Optimizer& optimizer) {
  Tensors all;
  for (const auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

FusedOptimizer::FusedOptimizer(
    std::string name,
    const Groups& groups,
    std::unique_ptr<torch::optim::OptimizerOptions> defaults,
    const FusedOptions& fused,
    bool decoupled_weight_decay)
    : Optimizer(groups, std::move(defaults)),
      name_(std::move(name)),
      fused_(fused),
      decoupled_weight_decay_(decoupled_weight_decay) {
  // Frozen parameters are checked when they first have a gradient.
  for (const torch::Tensor& param : parameters_of(*this)) {
    if (param.requires_grad()) check_param(param);
  }
  const auto& [k, alpha] = fused_.lookahead;
  TERN_CHECK_VALUE(
      k >= 0 && 0 <= alpha && alpha <= 1,
      "[{}] lookahead has k {} and alpha {}; expected k >= 0 (0 turns it off) "
      "and 0 <= alpha <= 1.",
      name_,
      k,
      alpha);
  TERN_CHECK_VALUE(
      fused_.optim_bits == 8 || fused_.optim_bits == 32,
      "[{}] optim_bits is {}; expected 8 or 32.",
      name_,
      fused_.optim_bits);
}

FusedOptimizer::Groups FusedOptimizer::one_group(Tensors params) {
  return {torch::optim::OptimizerParamGroup(std::move(params))};
}

void FusedOptimizer::check_not_negative(const char* option, double value)
    const {
  TERN_CHECK_VALUE(
      value >= 0,
      "[{}] {} is {}; expected >= 0.",
      name_,
      option,
      value);
}

void FusedOptimizer::check_param(const torch::Tensor& param) const {
  TERN_CHECK_VALUE(
      param.scalar_type() == torch::kFloat ||
          param.scalar_type() == torch::kBFloat16,
      "[{}] a parameter {} is {}; expected Float or BFloat16. {}",
      name_,
      param.sizes(),
      c10::toString(param.scalar_type()),
      param.scalar_type() == torch::kDouble
          ? fmt::format("For Double use torch{}.", name_.substr(4))
          : "Give it fp32 master weights and call set_weights(), as "
            "Learner::to_fp16() does.");
  TERN_CHECK_VALUE(
      param.layout() == torch::kStrided && param.is_non_overlapping_and_dense(),
      "[{}] a parameter {} with strides {} is not dense; expected memory "
      "without gaps or overlaps. Create it with clone().",
      name_,
      param.sizes(),
      param.strides());
}

torch::Tensor FusedOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  step_all({.grad_scale = if_defined(grad_scale_), .found_inf = {}});
  return loss;
}

void FusedOptimizer::step_amp(
    const torch::Tensor& grad_scale,
    const torch::Tensor& found_inf) {
  torch::Tensor scale = grad_scale;
  if (scale.defined() && grad_scale_.defined()) {
    scale = scale * grad_scale_.to(scale.device(), /*non_blocking=*/true);
  }
  step_all(
      {.grad_scale = if_defined(scale), .found_inf = if_defined(found_inf)});
}

void FusedOptimizer::step_all(const GradState& grad_state) {
  const torch::NoGradGuard no_grad;
  lists_.resize(param_groups_.size());
  // Checks every group before writing any.
  uint32_t index = 0;  // of the group's first parameter
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    collect(group, index);
    index += static_cast<uint32_t>(param_groups_[group].params().size());
  }
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    for (auto& [device, lists] : lists_[group]) {
      if (lists.size != 0) {
        const Args args = args_of(param_groups_[group].options());
        if (rates_on_device_ && !lists.rates.defined()) {
          lists.rates = rates_of(args, device);
        }
        lists.moments_run = moments_of(args);
        run_kernel(
            lists,
            args,
            {.grad_scale = on(device, grad_state.grad_scale),
             .found_inf = on(device, grad_state.found_inf)});
      }
      // Otherwise the gradients would stay in memory during the next forward
      // pass.
      lists.grads.clear();
    }
  }
  if (shard_ && shard_->after_step) shard_->after_step();
}

void FusedOptimizer::run_kernel(
    const TensorLists& lists,
    const Args& args,
    const GradState& grad_state) const {
  const OptimizerTensors tensors = {
      .params = first(lists.params, lists.size),
      .grads = first(lists.grads, lists.size),
      .weights = lists.has_weights ? first(lists.weights, lists.size)
                                   : at::TensorList(),
      .steps = first(lists.steps, lists.size),
      .slow_weights = first(lists.slow_weights, lists.size),
      .rounding_keys = lists.rounding_keys};
  const auto moments = [&](size_t k) {
    return k < lists.moments_run ? first(lists.moments[k], lists.size)
                                 : at::TensorList();
  };
  if (const auto* sgd = std::get_if<FusedSgdArgs>(&args)) {
    fused_sgd_(tensors, moments(0), *sgd, grad_state, lists.rates);
  } else {
    fused_adam_(
        tensors,
        moments(0),
        moments(1),
        moments(2),
        std::get<FusedAdamArgs>(args),
        grad_state,
        lists.rates);
  }
}

void FusedOptimizer::rates_on_device(bool on) {
  rates_on_device_ = on;
  for (auto& of_group : lists_) {
    for (auto& [device, lists] : of_group) lists.rates.reset();
  }
}

bool FusedOptimizer::write_rates() {
  bool as_recorded = false, all_fit = true;
  for (size_t group = 0; group < lists_.size(); ++group) {
    const Args args = args_of(param_groups_[group].options());
    for (auto& [device, lists] : lists_[group]) {
      if (!lists.rates.defined()) continue;
      as_recorded = true;
      all_fit = all_fit && lists.moments_run == moments_of(args);
      // A copy from pageable memory would block the host. Pinned memory is
      // reused only after the copies from it have finished, so a queued step
      // keeps its learning rates.
      torch::Tensor rates = rates_of(args, torch::kCPU);
      if (device.is_cuda()) rates = rates.pin_memory();
      lists.rates.copy_(rates, /*non_blocking=*/true);
    }
  }
  return as_recorded && all_fit;
}

void FusedOptimizer::set_shard(std::optional<Shard> shard) {
  shard_ = std::move(shard);
  lists_.clear();
  if (!shard_) return;
  for (const torch::Tensor& param : parameters_of(*this)) {
    c10::TensorImpl* const impl = param.unsafeGetTensorImpl();
    if (!shard_->params.contains(impl)) state_.erase(impl);
  }
}

void FusedOptimizer::collect(size_t group, uint32_t first_index) {
  for (auto& [device, lists] : lists_[group]) {
    lists.grads.clear();
    lists.rounding_keys.clear();
    lists.has_weights = false;
    lists.size = 0;
  }
  const size_t moments = moments_of(args_of(param_groups_[group].options()));
  uint32_t index = first_index;
  for (const torch::Tensor& param : param_groups_[group].params()) {
    const bool is_mine =
        !shard_ || shard_->params.contains(param.unsafeGetTensorImpl());
    if (is_mine && gradient(param).defined()) {
      collect(group, param, moments, index);
    }
    ++index;
  }
}

void FusedOptimizer::collect(
    size_t group,
    const torch::Tensor& param,
    size_t moments,
    uint32_t index) {
  const torch::Tensor& grad = gradient(param);
  TERN_CHECK_VALUE(
      grad.layout() == torch::kStrided,
      "[{}] a gradient is sparse; expected a dense gradient. Create the "
      "embedding with sparse(false), or train it with torch::optim.",
      name_);
  FusedParamState& state = state_of(param, moments);
  TensorLists& lists = lists_for(group, param.device());
  const size_t i = lists.size++;
  put(lists.params, i, param);
  put(lists.grads, i, grad);
  put(lists.weights, i, weight(param));
  lists.rounding_keys.push_back(index);
  put(lists.steps, i, state.step);
  if (fused_.lookahead.k > 0) put(lists.slow_weights, i, state.slow_weights);
  for (size_t k = 0; k < moments; ++k) {
    put(lists.moments[k], i, state.moments[k]);
  }
  if (lists.weights[i].defined()) lists.has_weights = true;
}

FusedParamState& FusedOptimizer::state_of(
    const torch::Tensor& param,
    size_t moments) {
  c10::TensorImpl* const impl = param.unsafeGetTensorImpl();
  if (state_.count(impl) == 0) {
    check_param(param);
    state_[impl] = new_state();
  }
  auto& state = static_cast<FusedParamState&>(*state_.at(impl));
  const bool is_first = moments > 0 && !state.moments[0].defined();
  if (!state.step.defined() || is_first) {
    // SGD's first step sets the moment to the gradient, even if momentum is
    // enabled later. The kernel recognizes that step by a count of 0.
    state.step = torch::zeros({}, at::device(param.device()).dtype(at::kFloat));
  }
  for (size_t k = 0; k < moments; ++k) {
    prepare_moment(param, state.moments[k]);
  }
  if (fused_.lookahead.k > 0 && !state.slow_weights.defined()) {
    state.slow_weights = param.detach().to(
        torch::kFloat,
        /*non_blocking=*/false,
        /*copy=*/true);
  }
  return state;
}

// Creates a moment of zeros unless it exists.
void FusedOptimizer::prepare_moment(
    const torch::Tensor& param,
    torch::Tensor& moment) const {
  const bool is_8bit =
      fused_.optim_bits == 8 && param.numel() >= fused_.min_8bit_size;
  const auto type = is_8bit ? torch::kByte : torch::kFloat;
  if (!moment.defined()) {
    moment = is_8bit ? torch::zeros(
                           {moment_8bit_size(param)},
                           at::device(param.device()).dtype(type))
                     : torch::zeros_like(param, type);
  }
  TERN_CHECK_VALUE(
      moment.scalar_type() == type,
      "[{}] a loaded moment of a parameter {} is {}; expected {}. Set "
      "optim_bits and min_8bit_size to the values of the saved optimizer.",
      name_,
      param.sizes(),
      c10::toString(moment.scalar_type()),
      c10::toString(type));
}

FusedOptimizer::TensorLists& FusedOptimizer::lists_for(
    size_t group,
    torch::Device device) {
  auto& of_group = lists_[group];
  for (auto& [at, lists] : of_group) {
    if (at == device) return lists;
  }
  return of_group.emplace_back(device, TensorLists{}).second;
}

const torch::Tensor& FusedOptimizer::weight(const torch::Tensor& param) const {
  static const torch::Tensor none;
  if (weights_.empty()) return none;
  const auto found = weights_.find(param.unsafeGetTensorImpl());
  return found == weights_.end() ? none : found->second;
}

const torch::Tensor& FusedOptimizer::gradient(
    const torch::Tensor& param) const {
  const torch::Tensor& own = param.grad();
  if (own.defined()) return own;
  const torch::Tensor& source = weight(param);
  return source.defined() ? source.grad() : own;
}

Tensors FusedOptimizer::gradients() const {
  Tensors all;
  for (const torch::Tensor& param : parameters_of(*this)) {
    const torch::Tensor& grad = gradient(param);
    if (grad.defined()) all.push_back(grad);
  }
  return all;
}

void FusedOptimizer::set_weights(
    const Tensors& masters,
    const Tensors& weights) {
  TERN_CHECK_VALUE(
      masters.size() == weights.size(),
      "[{}] set_weights: got {} master weights and {} weights; expected one "
      "weight per master weight.",
      name_,
      masters.size(),
      weights.size());
  std::unordered_map<c10::TensorImpl*, torch::Tensor> by_master;
  for (size_t i = 0; i < masters.size(); ++i) {
    const torch::Tensor& master = masters[i];
    const torch::Tensor& weight = weights[i];
    TERN_CHECK_VALUE(
        master.sizes() == weight.sizes() &&
            master.device() == weight.device() &&
            c10::isReducedFloatingType(weight.scalar_type()),
        "[{}] set_weights: weight {} is {} {} on {}; expected {} Half or "
        "BFloat16 on {}, like its master weight.",
        name_,
        i,
        weight.sizes(),
        c10::toString(weight.scalar_type()),
        weight.device().str(),
        master.sizes(),
        master.device().str());
    by_master[master.unsafeGetTensorImpl()] = weight;
  }
  weights_ = std::move(by_master);
  lists_.clear();
}

void FusedOptimizer::move_gradients_to_masters() {
  for (const torch::Tensor& param : parameters_of(*this)) {
    const torch::Tensor& grad = gradient(param);
    if (!grad.defined() || grad.scalar_type() == torch::kFloat) continue;
    const torch::Tensor in_fp32 = grad.to(torch::kFloat);
    const torch::Tensor& source = weight(param);
    if (source.defined()) source.mutable_grad().reset();
    param.mutable_grad() = in_fp32;
  }
}

Tensors FusedOptimizer::weight_copies() {
  Tensors copies;
  for (const torch::Tensor& param : parameters_of(*this)) {
    const auto found = state_.find(param.unsafeGetTensorImpl());
    if (found == state_.end()) continue;
    const auto& state = static_cast<FusedParamState&>(*found->second);
    if (state.slow_weights.defined()) copies.push_back(state.slow_weights);
  }
  return copies;
}

// Writes into the existing memory, which a recorded step may use.
void FusedOptimizer::weights_replaced() {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& param : parameters_of(*this)) {
    const auto found = state_.find(param.unsafeGetTensorImpl());
    if (found == state_.end()) continue;
    auto& state = static_cast<FusedParamState&>(*found->second);
    if (state.slow_weights.defined()) state.slow_weights.copy_(param);
  }
}

void FusedOptimizer::save(torch::serialize::OutputArchive& archive) const {
  write(archive);
  archive.write(kDecoupledKey, c10::IValue(decoupled_weight_decay_));
}

void FusedOptimizer::load(torch::serialize::InputArchive& archive) {
  read(archive);
  lists_.clear();
  c10::IValue decoupled;
  if (archive.try_read(kDecoupledKey, decoupled)) {
    decoupled_weight_decay(decoupled.toBool());
  }
  for (const torch::Tensor& param : parameters_of(*this)) {
    const auto found = state_.find(param.unsafeGetTensorImpl());
    if (found == state_.end()) continue;
    auto& state = static_cast<FusedParamState&>(*found->second);
    for (auto& [key, tensor] : state.tensors()) {
      if (tensor->defined()) *tensor = tensor->to(param.device());
    }
  }
}

}  // namespace tern::optim
