#include "tern/learner/precision/precision_probe.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include <ATen/autocast_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>
#include <torch/utils.h>

namespace tern {

namespace {

// Above autograd, so that rounding has a gradient, and above autocast.
constexpr c10::DispatchKey kProbeKey =
    c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr double kBadError = 0.5;

thread_local PrecisionProbe* probe_here = nullptr;

void watch(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kProbeKey);
  // Inside a kernel operations are its own affair.
  const bool is_inside = c10::impl::tls_is_dispatch_key_excluded(
      c10::DispatchKey::AutogradFunctionality);
  PrecisionProbe* const probe = PrecisionProbe::current();
  if (!probe || is_inside) return operation.redispatchBoxed(below, stack);
  probe->run(operation, below, stack);
}

void set_watching(bool on) {
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(
        torch::Library::IMPL,
        "_",
        kProbeKey,
        __FILE__,
        __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
    return made;
  }();
  c10::impl::tls_set_dispatch_key_included(kProbeKey, on);
}

std::string short_name(const c10::OperatorHandle& operation) {
  const std::string& name = operation.operator_name().name;
  return name.substr(name.rfind(':') + 1);
}

// Of the operations for which autocast has a kernel, those that compute in 16
// bits, and in the widest type of their operands; the others do in fp32.
#define TERN_NAME_OF(operation, ...) #operation,
const std::set<std::string, std::less<>> kAutocast16 = {
    AT_FORALL_LOWER_PRECISION_FP(TERN_NAME_OF)};
const std::set<std::string, std::less<>> kAutocastWidest = {
    AT_FORALL_PROMOTE(TERN_NAME_OF) "cat",
    "stack",
    "index_copy"};
#undef TERN_NAME_OF

bool is_fp32(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == torch::kFloat;
}

// Calls `function` on each fp32 tensor among the values.
template <class Values, class Function>
void for_each_fp32(Values& values, const Function& function) {
  for (auto& value : values) {
    if (value.isTensor()) {
      if (is_fp32(value.toTensor())) function(value.toTensor());
    } else if (value.isTensorList()) {
      for (const torch::Tensor& tensor : value.toTensorVector()) {
        if (is_fp32(tensor)) function(tensor);
      }
    }
  }
}

bool asks_for_fp32(
    const c10::OperatorHandle& operation,
    const torch::jit::Stack& stack) {
  const auto& arguments = operation.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (arguments[i].name() == "dtype" && value.isInt() &&
        value.toInt() == static_cast<int64_t>(torch::kFloat)) {
      return true;
    }
  }
  return false;
}

}  // namespace

Magnitudes::Magnitudes(const torch::Tensor& numbers) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor size = numbers.detach().to(torch::kFloat).abs();
  const torch::Tensor nonzero =
      size.masked_select((size > 0) & size.isfinite());
  if (nonzero.numel() == 0) return;
  largest = nonzero.max().item<double>();
  root_mean_square = std::sqrt(
      nonzero.to(torch::kDouble).square().sum().item<double>() /
      static_cast<double>(nonzero.numel()));
  const torch::Tensor bins = torch::histc(
      nonzero.cpu().log2().floor() + 0.5,
      kBins,
      -kZero,
      kBins - kZero);
  const float* const count = bins.const_data_ptr<float>();
  counts.assign(count, count + kBins);
}

double Magnitudes::share_below(int64_t exponent) const {
  double below = 0, all = 0;
  for (int64_t i = 0; i < kBins; ++i) {
    all += counts[i];
    if (i - kZero < exponent) below += counts[i];
  }
  return all > 0 ? below / all : 0;
}

PrecisionProbe::PrecisionProbe(
    const Model& model,
    const Tensors& inputs,
    std::optional<Rounding> rounding,
    const PrecisionProbe* reference)
    : rounding_(std::move(rounding)), reference_(reference) {
  const auto add = [&](const ModelTensor& item, bool is_weight) {
    const auto* const impl = item.tensor.unsafeGetTensorImpl();
    const bool is_norm = item.layer == LayerKind::batch_norm;
    const bool is_kept = rounding_ && rounding_->kept.contains(impl);
    const bool is_fp32 = is_kept || is_norm || is_autocast();
    const size_t dot = item.name.rfind('.');
    origins_[impl] = {
        .weight_of = !is_weight                 ? ""
                     : dot == std::string::npos ? item.name
                                                : item.name.substr(0, dot),
        .is_kept = is_kept,
        .is_fp32 = is_fp32,
        .promotes = !is_norm};
  };
  for (const ModelTensor& item : model.buffers()) add(item, false);
  for (const ModelTensor& item : model.parameters()) add(item, true);
  for (const torch::Tensor& input : inputs) {
    Origin& origin = origins_[input.unsafeGetTensorImpl()];
    origin.is_fp32 = is_autocast() || (rounding_ && rounding_->keeps_inputs);
    if (!is_fp32(input)) continue;
    origin.is_bad = !rounded(input, false).isfinite().all().item<bool>();
    inputs_overflow_ |= origin.is_bad;
  }
  probe_here = this;
  set_watching(true);
}

PrecisionProbe::~PrecisionProbe() {
  if (is_open_) end({});
}

Tensors PrecisionProbe::end(const Tensors& outputs) {
  is_open_ = false;
  set_watching(false);
  probe_here = nullptr;
  Tensors results;
  for (const torch::Tensor& output : outputs) {
    results.push_back(is_fp32(output) ? rounded(output, false) : output);
  }
  return results;
}

PrecisionProbe* PrecisionProbe::current() {
  return probe_here;
}

bool PrecisionProbe::is_autocast() const {
  return rounding_ && rounding_->autocast;
}

bool PrecisionProbe::has_autocast(const c10::OperatorHandle& operation) const {
  return is_autocast() &&
         operation.hasKernelForDispatchKey(
             rounding_->autocast->is_cuda() ? c10::DispatchKey::AutocastCUDA
                                            : c10::DispatchKey::AutocastCPU);
}

PrecisionProbe::Origin PrecisionProbe::origin_of(
    const torch::Tensor& tensor) const {
  const auto at = origins_.find(tensor.unsafeGetTensorImpl());
  return at == origins_.end() ? Origin{} : at->second;
}

struct PrecisionProbe::Operands {
  Origin result;
  bool has_weights = false;
  double largest = 0;  // magnitude of what is not a weight
};

PrecisionProbe::Operands PrecisionProbe::look_at(
    const c10::OperatorHandle& operation,
    const torch::jit::Stack& stack) {
  Operands all;
  bool is_promoted = false;
  const auto values = at::ArrayRef<c10::IValue>(stack).slice(
      stack.size() - operation.schema().arguments().size());
  for_each_fp32(values, [&](const torch::Tensor& tensor) {
    const Origin origin = origin_of(tensor);
    all.result.is_kept |= origin.is_kept;
    all.result.is_bad |= origin.is_bad;
    all.result.error = std::max(all.result.error, origin.error);
    if (origin.cancelled) all.result.cancelled = origin.cancelled;
    all.result.module = std::max(all.result.module, origin.module);
    is_promoted |= origin.is_fp32 && origin.promotes && tensor.dim() > 0;
    if (origin.weight_of.empty()) {
      if (reference_ && tensor.numel() > 0) {
        all.largest =
            std::max(all.largest, tensor.detach().abs().max().item<double>());
      }
      return;
    }
    all.has_weights = true;
    const auto at = std::ranges::find(modules_, origin.weight_of);
    all.result.module = at - modules_.begin();
    if (at == modules_.end()) modules_.push_back(origin.weight_of);
  });
  const std::string name = short_name(operation);
  const bool is_16_bit = has_autocast(operation)
                             ? kAutocast16.contains(name)
                             : all.has_weights && !is_autocast() &&
                                   computes_in_type_of_weights(name);
  all.result.is_fp32 = all.result.is_kept || is_in_fp32_operation_ ||
                       asks_for_fp32(operation, stack) ||
                       (is_promoted && !is_16_bit);
  return all;
}

torch::Tensor PrecisionProbe::rounded(
    const torch::Tensor& tensor,
    bool is_in_16_bits) {
  if (!rounding_) return tensor;
  const Origin origin = origin_of(tensor);
  const bool is_converted =
      is_in_16_bits && origin.promotes && tensor.dim() > 0;
  if (origin.is_fp32 && !is_converted) return tensor;
  auto& [version, result] = rounded_[tensor.unsafeGetTensorImpl()];
  if (!result.defined() || version != tensor._version()) {
    const c10::impl::ExcludeDispatchKeyGuard unwatched(kProbeKey);
    result = tensor.to(rounding_->dtype).to(torch::kFloat);
    version = tensor._version();
    alive_.push_back(tensor);
  }
  return result;
}

void PrecisionProbe::run(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const auto& schema = operation.schema();
  const size_t count = schema.arguments().size();
  const auto leave = c10::make_scope_exit(
      [this, outer = is_in_fp32_operation_] { is_in_fp32_operation_ = outer; });
  is_in_fp32_operation_ |= has_autocast(operation) &&
                           !kAutocast16.contains(short_name(operation)) &&
                           !kAutocastWidest.contains(short_name(operation));
  Operands operands;
  {
    const c10::impl::ExcludeDispatchKeyGuard unwatched(kProbeKey);
    operands = look_at(operation, *stack);
  }
  const bool converts = asks_for_fp32(operation, *stack);
  // What is made of operations is seen by these, but for whole layers.
  if (!operands.has_weights && !converts &&
      operation.hasKernelForDispatchKey(
          c10::DispatchKey::CompositeImplicitAutograd)) {
    return operation.redispatchBoxed(keys, stack);
  }
  bool is_view = false;
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = (*stack)[stack->size() - count + i];
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    is_view |= alias && !alias->isWrite();
    if (alias && !converts) continue;  // rounded where it is read
    if (value.isTensor() && is_fp32(value.toTensor())) {
      value = rounded(value.toTensor(), !operands.result.is_fp32);
    } else if (value.isTensorList()) {
      Tensors list = value.toTensorVector();
      for (torch::Tensor& tensor : list) {
        if (is_fp32(tensor)) tensor = rounded(tensor, !operands.result.is_fp32);
      }
      value = list;
    }
  }
  Origin source;
  if (is_view && !converts && (*stack)[stack->size() - count].isTensor()) {
    source = origin_of((*stack)[stack->size() - count].toTensor());
  }
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kProbeKey);
  operation.redispatchBoxed(keys, stack);
  const auto results = at::ArrayRef<c10::IValue>(*stack).slice(
      stack->size() - schema.returns().size());
  bool is_first = !is_view || converts;
  for_each_fp32(results, [&](const torch::Tensor& output) {
    alive_.push_back(output);
    if (is_view && !converts) {
      origins_[output.unsafeGetTensorImpl()] = source;
      return;
    }
    if (std::exchange(is_first, false))
      note_output(operation, output, operands);
    Origin origin = operands.result;
    origin.is_kept = false;
    origins_[output.unsafeGetTensorImpl()] = origin;
  });
}

void PrecisionProbe::note_output(
    const c10::OperatorHandle& operation,
    const torch::Tensor& output,
    Operands& operands) {
  ops_.push_back(
      {.name = short_name(operation),
       .module = operands.result.module,
       .output = output.detach(),
       .version = output._version()});
  if (reference_) {
    compare(ops_.back(), output, operands);
  } else if (output.requires_grad()) {
    output.register_hook([this, i = ops_.size() - 1](const torch::Tensor& g) {
      ops_[i].gradient = Magnitudes(g);
    });
  }
}

void PrecisionProbe::compare(
    ProbedOp& op,
    const torch::Tensor& output,
    Operands& operands) {
  const torch::NoGradGuard no_grad;
  if (!operands.result.is_fp32) {
    // As it is stored, also for backward; not a change that autograd may see.
    const torch::Tensor stored = output.variable_data();
    stored.copy_(stored.to(rounding_->dtype));
  }
  Origin& result = operands.result;
  op.blamed = result.cancelled.value_or(op.module);
  const size_t i = ops_.size() - 1;
  if (i >= reference_->ops_.size()) return;
  const ProbedOp& plain = reference_->ops_[i];
  if (plain.name != op.name || plain.output.sizes() != output.sizes() ||
      plain.output._version() != plain.version || output.numel() == 0) {
    return;
  }
  const torch::Tensor right = plain.output.isfinite();
  const torch::Tensor both = op.output.isfinite() & right;
  op.overflow = (right & ~both).to(torch::kFloat).mean().item<double>();
  const auto norm_of = [&](const torch::Tensor& t) {
    return t.masked_fill(~both, 0).to(torch::kDouble).norm().item<double>();
  };
  const double size = norm_of(plain.output);
  const double difference = norm_of(op.output - plain.output);
  op.error = size > 0 ? difference / size : 0;
  // Rounding that adds up from layer to layer is noise, and nobody's fault.
  const bool is_sudden = result.cancelled || op.error > 8 * result.error;
  result.error = op.error;
  if (result.is_bad ||
      (op.overflow == 0 && (op.error <= kBadError || !is_sudden))) {
    return;
  }
  // What cancels out differs by the rounding of its operands: to blame once it
  // spoils something.
  const double ulp = rounding_->dtype == torch::kHalf ? 0x1p-10 : 0x1p-7;
  const double natural = 8 * ulp * operands.largest *
                         std::sqrt(static_cast<double>(output.numel()));
  if (op.overflow == 0 && difference <= natural) {
    if (!result.cancelled) result.cancelled = op.module;
  } else {
    op.is_first_bad = result.is_bad = true;
  }
}

}  // namespace tern
