#include "tern/callbacks/precision/precision_probe.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>

#include <ATen/Context.h>
#include <torch/library.h>

#include "tern/callbacks/precision/loss_scaling.h"
#include "tern/learner/loop.h"
#include "tern/learner/precision/autocast.h"
#include "tern/learner/precision/keep_fp32.h"

namespace tern {

namespace {

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// Above autograd, so that what is copied has a gradient, and above autocast.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
thread_local PrecisionProbe* probe_here = nullptr;

void watch(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (!probe_here) return operation.redispatchBoxed(keys, stack);
  probe_here->call(operation, keys, *stack);
}

// The operations that this thread calls meanwhile go through the probe.
class Watching {
 public:
  explicit Watching(PrecisionProbe& probe) {
    static const auto library = [] {
      auto made = std::make_unique<torch::Library>(
          torch::Library::IMPL,
          "_",
          kKey,
          __FILE__,
          __LINE__);
      made->fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
      return made;
    }();
    probe_here = &probe;
    c10::impl::tls_set_dispatch_key_included(kKey, true);
  }
  ~Watching() {
    c10::impl::tls_set_dispatch_key_included(kKey, false);
    probe_here = nullptr;
  }
  Watching(const Watching&) = delete;
};

template <class Values>
Tensors tensors_of(const Values& values) {
  Tensors tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      std::ranges::copy(value.toTensorVector(), std::back_inserter(tensors));
    }
  }
  return tensors;
}

template <class Value>
auto last_of(const std::vector<Value>& all, size_t count) {
  return c10::ArrayRef<Value>(all).slice(all.size() - count);
}

// The type that the caller asks for: whether it is fp32. Options with a layout
// are those of another tensor, in the type that the module computes in.
std::optional<bool> asks_for_fp32(
    const c10::FunctionSchema& schema,
    c10::ArrayRef<c10::IValue> given,
    bool is_kept) {
  std::optional<bool> asked;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (name == "dtype" && given[i].isInt()) {
      asked = !c10::isReducedFloatingType(
          static_cast<torch::ScalarType>(given[i].toInt()));
    }
    if (name == "layout" && !given[i].isNone() && asked) asked = is_kept;
  }
  return asked;
}

bool is_infinite(const c10::IValue& value) {
  if (value.isDouble()) return std::isinf(value.toDouble());
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().is_floating_point() &&
         value.toTensor().detach().isinf().any().item<bool>();
}

}  // namespace

ByModule by_module(const LearnerParts& l, bool of_gradients) {
  std::map<std::string, Tensors> parts;
  for (const ModelTensor& p : l.model.parameters()) {
    const torch::Tensor& own = of_gradients ? p.tensor.grad() : p.tensor;
    if (!own.defined()) continue;
    parts[module_of(p.name)].push_back(own.detach().flatten());
  }
  ByModule all;
  for (const auto& [name, own] : parts) {
    all[name] = torch::cat(own).to(torch::kDouble);
  }
  return all;
}

torch::Tensor PrecisionProbe::rounded(const torch::Tensor& tensor) const {
  if (!emulates()) return tensor;
  return tensor.to(type_->dtype).to(tensor.scalar_type());
}

size_t PrecisionProbe::index_of(const std::string& module) {
  std::vector<ModuleAudit>& all = audit_.modules;
  const auto at = std::ranges::find(all, module, &ModuleAudit::name);
  const size_t index = at - all.begin();
  if (at == all.end()) all.push_back({.name = module});
  return index;
}

PrecisionProbe::Origin& PrecisionProbe::origin_of(const torch::Tensor& tensor) {
  const auto [at, is_new] = origins_.try_emplace(tensor.unsafeGetTensorImpl());
  Origin& origin = at->second;
  if (!is_new || !tensor.has_storage()) return origin;
  // Handles of one memory that no operation returned, as of torch::full.
  const auto known = by_storage_.find(tensor.storage().unsafeGetStorageImpl());
  if (known != by_storage_.end()) origin = known->second;
  // A constant that is no buffer is not converted with the model.
  if (known == by_storage_.end()) origin.is_fp32 = emulates();
  origin.self = tensor;
  return origin;
}

void PrecisionProbe::set_origin(
    const torch::Tensor& tensor,
    const Origin& origin) {
  Origin& own = origins_[tensor.unsafeGetTensorImpl()];
  own = origin;
  own.self = tensor;
  if (!tensor.has_storage()) return;
  by_storage_[tensor.storage().unsafeGetStorageImpl()] = own;
}

ByModule PrecisionProbe::pass(LearnerParts& l, const PrecisionType* type) {
  type_ = type;
  seen_.clear();
  std::vector<torch::Tensor> before;
  for (const ModelTensor& item : l.model.state()) {
    before.push_back(item.tensor.detach().clone());
  }
  at::Generator generator = at::globalContext().defaultGenerator(l.data.device);
  const torch::Tensor random = generator.get_state();
  l.state.outputs = forward(l);
  outputs_to_fp32(l.state.outputs);
  l.state.loss = loop::compute_loss(l);
  const double scale = type ? (audit_.*type->in_model).loss_scale : 1;
  (l.state.loss * scale).backward();
  ByModule gradients = by_module(l, true);
  loop::zero_grad(l);
  if (!type) {
    for (const auto& [name, gradient] : gradients) {
      note_gradient(index_of(name), gradient);
    }
    const bool is_finite = l.state.loss.isfinite().all().item<bool>();
    if (!is_finite && !first_infinite_.empty() && audit_.problems.empty()) {
      audit_.problems.push_back(first_infinite_);
    }
  }
  for (size_t i = 0; const ModelTensor& item : l.model.state()) {
    item.tensor.variable_data().copy_(before[i++]);
  }
  generator.set_state(random);
  l.state.outputs.clear();
  origins_.clear();
  by_storage_.clear();
  return gradients;
}

Tensors PrecisionProbe::forward(LearnerParts& l) {
  const std::vector<std::string> none;
  const auto& names = type_ ? (audit_.*type_->in_model).keep_fp32 : none;
  const KeptParameters kept =
      kept_parameters(l.model, names, "Learner::audit_precision");
  kept_.clear();
  for (const ModelTensor& item : l.model.state()) {
    const bool is_kept = kept.contains(item.tensor.unsafeGetTensorImpl());
    set_origin(item.tensor, {.is_kept = is_kept, .is_fp32 = is_kept});
    if (is_kept) kept_.insert(module_of(item.name));
    if (is_kept || item.layer == LayerKind::batch_norm) continue;
    if (!item.tensor.is_floating_point()) continue;
    torch::Tensor weight = item.tensor.variable_data();
    weight.copy_(rounded(weight));
  }
  for (const ModelTensor& p : l.model.parameters()) {
    origin_of(p.tensor).weight_of = module_of(p.name);
  }
  const bool keeps_inputs = std::ranges::count(names, "input") > 0;
  Tensors inputs = l.state.batch_data.inputs;
  for (torch::Tensor& input : inputs) {
    const bool is_16_bits = input.is_floating_point() && !keeps_inputs;
    if (is_16_bits) input = rounded(input);
    set_origin(input, {.is_fp32 = emulates() && keeps_inputs});
  }
  const AutocastGuard autocast(l.data.device, {}, type_ && !emulates());
  std::optional<KeepFp32Guard> keeps;
  if (!emulates()) keeps.emplace(kept);
  const Watching watching(*this);
  Tensors outputs = loop::run_model(l, inputs);
  for (const torch::Tensor& output : outputs) {
    const Origin& origin = origin_of(output);
    if (origin.doubt.empty()) continue;
    blame(audit_.modules[origin.doubted], origin.doubt);
  }
  return outputs;
}

PrecisionProbe::Op PrecisionProbe::look_at(
    const c10::OperatorHandle& operation,
    const Tensors& operands) {
  Op op;
  op.name = operation.operator_name().name;
  op.name.erase(0, op.name.rfind(':') + 1);
  bool is_kept = false;
  for (const torch::Tensor& tensor : operands) {
    const Origin& origin = origin_of(tensor);
    is_kept |= origin.is_kept;
    if (!tensor.is_floating_point()) continue;
    op.result.is_fp32 |= origin.is_fp32 && tensor.dim() > 0;
    take_worst(op.result.error, origin.error);
    if (!origin.doubt.empty()) {
      op.result.doubt = origin.doubt;
      op.result.doubted = origin.doubted;
    }
    if (!origin.weight_of.empty()) {
      op.has_weights = true;
      op.result.module = index_of(origin.weight_of);
      continue;
    }
    if (type_) take_worst(op.largest_norm, norm_of(tensor));
    if (op.has_weights) continue;
    op.result.module = std::max(op.result.module, origin.module);
  }
  if (is_kept || !op.has_weights || !emulates()) return op;
  if (!computes_in_type_of_weights(op.name)) return op;
  // What is fp32 becomes 16 bits.
  ModuleAudit& module = audit_.modules[op.result.module];
  for (const torch::Tensor& tensor : operands) {
    if (!origin_of(tensor).is_fp32) continue;
    const torch::Tensor own = tensor.detach();
    const bool is_lost =
        (own.isfinite() & ~rounded(own).isfinite()).any().item<bool>();
    if (is_lost) blame(module, op.name + " overflows");
  }
  op.result.is_fp32 = false;
  return op;
}

void PrecisionProbe::call(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = operation.schema();
  const auto given = last_of(stack, schema.arguments().size());
  const Tensors operands = tensors_of(given);
  std::optional<bool> asked;
  Op op;
  bool is_view = false, is_in_place = false;
  {
    const c10::impl::ExcludeDispatchKeyGuard unwatched(kKey);
    op = look_at(operation, operands);
    const std::string& module = audit_.modules[op.result.module].name;
    asked = asks_for_fp32(schema, given, keeps(module));
    if (op.name == "to" && schema.overload_name() == "other") {
      asked = origin_of(operands.back()).is_fp32;
    }
    op.is_infinite = !type_ && std::ranges::any_of(given, is_infinite);
  }
  // Parts are watched one by one, but for those of a layer.
  if (!op.has_weights && !asked &&
      operation.hasKernelForDispatchKey(
          c10::DispatchKey::CompositeImplicitAutograd)) {
    return operation.redispatchBoxed(keys, &stack);
  }
  if (!given.empty() && given[0].isTensor()) {
    const c10::AliasInfo* const alias = schema.arguments()[0].alias_info();
    is_in_place = alias && alias->isWrite();
    is_view = alias && !is_in_place;
    const torch::Tensor first = given[0].toTensor();
    if (is_in_place) op.result.is_fp32 = origin_of(first).is_fp32;
  }
  // In numbers of their own, or of PyTorch's default type.
  if (operands.empty()) op.result.is_fp32 = true;
  if (asked) op.result.is_fp32 = *asked;
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kKey);
  operation.redispatchBoxed(keys, &stack);
  if (emulates() && op.name == "to" && asked) {
    // Among 16 bits a conversion is a copy.
    stack.back() = stack.back().toTensor().clone();
    is_view = false;
  }
  // Statistics for backward stay fp32.
  bool is_result = op.name.find("empty") == std::string::npos;
  for (const torch::Tensor& output :
       tensors_of(last_of(stack, schema.returns().size()))) {
    Origin origin = op.result;
    if (is_view) {
      origin = origin_of(operands[0]);
    } else if (is_in_place) {
      origin.weight_of = origin_of(output).weight_of;
      origin.is_kept = origin_of(output).is_kept;
    } else if (std::ranges::any_of(operands, [&](const torch::Tensor& operand) {
                 return operand.is_same(output);
               })) {
      continue;  // a conversion to what it is
    }
    if (is_result && !is_view && output.is_floating_point() &&
        output.numel() > 0) {
      note(op, output, origin);
    }
    is_result &= op.name[0] != '_' && !op.name.starts_with("native_");
    set_origin(output, origin);
  }
}

}  // namespace tern
