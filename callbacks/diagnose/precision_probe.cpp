#include "tern/callbacks/diagnose/precision_probe.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>
#include <optional>

#include <ATen/Context.h>
#include <ATen/core/stack.h>
#include <ATen/native/TypeProperties.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/library.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

constexpr double kBadError = 0.5;

// A key above autograd, so that conversions have gradients, and above autocast.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
thread_local PrecisionProbe* probe_here = nullptr;

void watch(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  // Threads that the model starts may inherit the key.
  if (!probe_here) return operation.redispatchBoxed(keys, stack);
  probe_here->call(operation, keys, *stack);
}

// Registered at the first audit, not at program start, since most programs do
// not need this fallback.
void register_watch() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never removed, since other threads may be calling it when the program
    // ends.
    auto* const library =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
  });
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

bool is_16_bits(const torch::Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type());
}

bool is_infinite(const c10::IValue& value) {
  if (value.isDouble()) return std::isinf(value.toDouble());
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().isinf().any().item<bool>();
}

double norm_of(const torch::Tensor& numbers) {
  return numbers.to(torch::kDouble).norm().item<double>();
}

// For an operation with floating-point inputs.
torch::ScalarType type_of_result(
    const std::string& operation,
    const Tensors& inputs) {
  Tensors floating;
  std::ranges::copy_if(
      inputs,
      std::back_inserter(floating),
      &torch::Tensor::is_floating_point);
  // These operations have fp32 weights.
  const bool is_of_first =
      operation == "batch_norm" || operation == "instance_norm";
  return is_of_first ? floating[0].scalar_type()
                     : at::native::result_type(floating);
}

double share(const torch::Tensor& chosen, const torch::Tensor& among) {
  const double all = among.sum().item<double>();
  return all > 0 ? (chosen & among).sum().item<double>() / all : 0;
}

}  // namespace

ByModule by_module(const LearnerParts& l, bool of_gradients) {
  ByModule all;
  for (const ModelTensor& p : l.model.parameters()) {
    const torch::Tensor& own = of_gradients ? p.tensor.grad() : p.tensor;
    if (!own.defined()) continue;
    const torch::Tensor flat = own.detach().flatten().to(torch::kDouble);
    torch::Tensor& joined = all[module_of(p.name)];
    joined = joined.defined() ? torch::cat({joined, flat}) : flat.clone();
  }
  return all;
}

ModuleAudit::Change change_of(
    const torch::Tensor& own,
    const torch::Tensor& fp32,
    double smallest_normal) {
  const torch::Tensor finite = fp32.isfinite();
  const torch::Tensor bad = ~(finite & own.isfinite());
  const double size = norm_of(fp32.masked_fill(bad, 0));
  const double difference = norm_of((own - fp32).masked_fill(bad, 0));
  return {
      .overflow = share(bad, finite),
      .tiny = share(fp32.abs() < smallest_normal, fp32 != 0),
      .error = size > 0 ? difference / size : 0};
}

void take_worst(double& worst, double other) {
  if (!(other <= worst) && !std::isnan(worst)) worst = other;
}

void take_worst(ModuleAudit::Change& worst, const ModuleAudit::Change& other) {
  take_worst(worst.overflow, other.overflow);
  take_worst(worst.tiny, other.tiny);
  take_worst(worst.error, other.error);
}

ByModule PrecisionProbe::pass(LearnerParts& l, const PrecisionType* type) {
  type_ = type;
  const TypeAudit model = type ? audit_.*type->in_model : TypeAudit();
  kept_ = kept_parameters(l.model, model.keep_fp32, "Learner::audit_precision");
  Tensors before;
  for (const ModelTensor& buffer : l.model.buffers()) {
    before.push_back(buffer.tensor.clone());
  }
  at::Generator generator = at::globalContext().defaultGenerator(l.data.device);
  std::optional<MasterWeights> masters;
  if (emulates()) masters.emplace(l.model, type->dtype, false, kept_);
  const auto restore =
      c10::make_scope_exit([&, random = generator.get_state()]() mutable {
        if (masters) masters->restore();
        for (size_t i = 0; const ModelTensor& buffer : l.model.buffers()) {
          buffer.tensor.variable_data().copy_(before[i++]);
        }
        generator.set_state(random);
        loop::zero_grad(l);
        l.state.outputs.clear();
        origins_.clear();
        seen_.clear();
      });
  l.state.outputs = forward(l);
  outputs_to_fp32(l.state.outputs);
  l.state.loss = loop::compute_loss(l);
  (l.state.loss * model.loss_scale).backward();
  ByModule gradients = by_module(l, true);
  if (type) return gradients;
  for (const auto& [name, gradient] : gradients) {
    note_gradient(index_of(name), gradient);
  }
  if (!first_infinite_.empty() && !l.state.loss.isfinite().all().item<bool>()) {
    audit_.problems.push_back(first_infinite_);
  }
  return gradients;
}

Tensors PrecisionProbe::forward(LearnerParts& l) {
  Tensors inputs = l.state.batch_data.inputs;
  const bool converts =
      emulates() &&
      std::ranges::count((audit_.*type_->in_model).keep_fp32, "input") == 0;
  for (torch::Tensor& input : inputs) {
    if (converts && input.is_floating_point()) input = input.to(type_->dtype);
  }
  for (const ModelTensor& p : l.model.parameters()) {
    origin_of(p.tensor) = {.self = p.tensor, .weight_of = module_of(p.name)};
  }
  const AutocastGuard autocast(l.data.device, {}, type_ && type_->is_autocast);
  std::optional<torch::ScalarType> dtype;
  if (emulates()) dtype = type_->dtype;
  const KeepFp32Guard keeps(kept_, dtype);
  const auto stop = c10::make_scope_exit([] { probe_here = nullptr; });
  probe_here = this;
  register_watch();
  const c10::impl::IncludeDispatchKeyGuard watched(kKey);
  Tensors outputs = loop::run_model(l, inputs);
  for (const torch::Tensor& output : outputs) {
    const Origin& origin = origin_of(output);
    if (origin.suspect.empty()) continue;
    blame(audit_.modules[origin.suspected], origin.suspect);
  }
  return outputs;
}

void PrecisionProbe::call(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack& stack) {
  std::optional<c10::impl::ExcludeDispatchKeyGuard> unwatched(kKey);
  Call call = describe(operation, stack);
  // A composite operation is recorded by its parts, unless it is a layer.
  if (!call.op.has_weights && !call.has_dtype &&
      operation.hasKernelForDispatchKey(
          c10::DispatchKey::CompositeImplicitAutograd)) {
    unwatched.reset();
    return operation.redispatchBoxed(keys, &stack);
  }
  if (call.is_emulated) {
    KeepFp32Guard::convert(operation, stack);
    call.op.type = type_of_result(
        call.op.name,
        tensors_of(torch::jit::last(stack, call.arguments)));
    to_type(torch::kFloat, stack, call.arguments);
  }
  operation.redispatchBoxed(keys, &stack);
  if (call.results == 0) return;
  const c10::IValue wide = round_result(call, stack);
  compare_result(call, wide, stack);
  for (const torch::Tensor& output :
       tensors_of(torch::jit::last(stack, call.results))) {
    Origin& origin = origin_of(output);
    // A parameter that is written in place remains a parameter.
    if (!call.is_copy) call.op.origin.weight_of = origin.weight_of;
    origin = call.op.origin;
    origin.self = output;
  }
}

PrecisionProbe::Call PrecisionProbe::describe(
    const c10::OperatorHandle& operation,
    const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = operation.schema();
  Call call{
      .arguments = schema.arguments().size(),
      .results = schema.returns().size()};
  const auto given = torch::jit::last(stack, call.arguments);
  for (size_t i = 0; i < call.arguments; ++i) {
    call.has_dtype |=
        schema.arguments()[i].name() == "dtype" && !given[i].isNone();
  }
  const Tensors operands = tensors_of(given);
  call.op = look_at(operation.operator_name().name, operands);
  call.op.is_infinite = !type_ && std::ranges::any_of(given, is_infinite);
  const c10::AliasInfo* const alias = call.arguments > 0 && given[0].isTensor()
                                          ? schema.arguments()[0].alias_info()
                                          : nullptr;
  const bool is_in_place = alias && alias->isWrite();
  if (is_in_place) call.in_place = given[0].toTensor();
  call.is_copy = (alias && !is_in_place) || call.op.name == "_to_copy";
  if (call.is_copy) call.op.origin = origin_of(operands[0]);
  // Some attention kernels accept only 16 bits.
  call.is_emulated = emulates() && !call.has_dtype && !call.is_copy &&
                     !call.op.name.starts_with("_scaled") &&
                     !call.op.name.starts_with("_fused") &&
                     is_in_place == schema.is_mutable() &&
                     std::ranges::any_of(operands, is_16_bits);
  return call;
}

// Rounds the result of an emulated operation once to its 16-bit dtype.
// \return the unrounded result, in fp32.
c10::IValue PrecisionProbe::round_result(
    const Call& call,
    torch::jit::Stack& stack) {
  c10::IValue wide = torch::jit::peek(stack, 0, call.results);
  if (!call.in_place.defined()) {
    if (call.is_emulated) to_type(call.op.type, stack, call.results);
  } else if (!call.in_place.is_same(wide.toTensor())) {
    // The result was computed in an fp32 copy of the tensor that is written.
    wide = torch::jit::peek(stack, 0, call.results) =
        call.in_place.copy_(wide.toTensor());
  }
  return wide;
}

// Records the first result in the fp32 pass and compares it in the other
// passes; further results are statistics, indices and similar values.
void PrecisionProbe::compare_result(
    Call& call,
    const c10::IValue& wide,
    torch::jit::Stack& stack) {
  c10::IValue& first = torch::jit::peek(stack, 0, call.results);
  const bool is_compared = !call.is_copy && first.isTensor() &&
                           first.toTensor().is_floating_point() &&
                           first.toTensor().numel() > 0 &&
                           call.op.name.find("empty") == std::string::npos;
  if (!is_compared) return;
  if (!type_) return note_fp32(call.op, first.toTensor());
  // Backward must use the rounded values too, but autograd must not see the
  // change.
  wide.toTensor().variable_data().copy_(first.toTensor());
  judge(call.op, wide.toTensor(), first, call.op.origin);
}

PrecisionProbe::Op PrecisionProbe::look_at(
    const std::string& name,
    const Tensors& operands) {
  Op op{.name = name.substr(name.rfind(':') + 1)};
  for (const torch::Tensor& tensor : operands) {
    if (!tensor.is_floating_point()) continue;
    const Origin& origin = origin_of(tensor);
    if (!origin.weight_of.empty()) {
      op.has_weights = true;
      op.origin.module = index_of(origin.weight_of);
      continue;
    }
    if (!op.has_weights) {
      op.origin.module = std::max(op.origin.module, origin.module);
    }
    take_worst(op.origin.error, origin.error);
    if (origin.suspect.empty()) continue;
    op.origin.suspect = origin.suspect;
    op.origin.suspected = origin.suspected;
  }
  return op;
}

void PrecisionProbe::note_fp32(const Op& op, const torch::Tensor& output) {
  const size_t i = op.origin.module;
  ModuleAudit& module = audit_.modules[i];
  results_[fmt::format("{}/{}", i, op.name)].push_back(output.detach().clone());
  take_worst(module.largest_output, output.abs().max().item<double>());
  // Infinities from a mask are not a problem, unless the loss is not finite.
  if (first_infinite_.empty() && !op.is_infinite &&
      !output.isfinite().all().item<bool>()) {
    first_infinite_ = fmt::format(
        "{} in {} is not finite, even in fp32",
        op.name,
        module.name);
  }
  if (!output.requires_grad()) return;
  output.register_hook([this, i](const torch::Tensor& gradient) {
    note_gradient(i, gradient);
    return gradient;
  });
}

void PrecisionProbe::note_gradient(
    size_t module,
    const torch::Tensor& gradient) {
  const auto count = gradient.count_nonzero().item<double>();
  if (count == 0) return;
  ModuleAudit& own = audit_.modules[module];
  take_worst(own.largest_gradient, gradient.abs().max().item<double>());
  faintest_ = std::min(faintest_, norm_of(gradient) / std::sqrt(count));
}

void PrecisionProbe::judge(
    const Op& op,
    const torch::Tensor& wide,
    c10::IValue& result,
    Origin& origin) {
  const auto key = fmt::format("{}/{}", origin.module, op.name);
  const size_t n = seen_[key]++;
  const Tensors& all = results_[key];
  torch::Tensor own = result.toTensor();
  if (n >= all.size() || all[n].sizes() != own.sizes()) return;
  const torch::Tensor& right = all[n];
  const ModuleAudit::Change change =
      change_of(own.detach(), right, type_->smallest_normal());
  const bool is_overflow = change.overflow > 0;
  const bool is_spoiled = !is_overflow && change.error > kBadError;
  // Rounding that accumulates from layer to layer is noise, for which no module
  // is blamed.
  const bool is_sudden = is_spoiled && change.error > 8 * origin.error;
  origin.error = change.error;
  if (!is_spoiled) origin.suspect.clear();
  if (is_sudden && origin.suspect.empty()) {
    // Values that cancel out, such as the mean of normalized data, or that are
    // added to much larger ones, count as a fault only if they spoil a layer or
    // the output.
    origin.suspect =
        fmt::format("{} is {:.0f}% wrong", op.name, 100 * change.error);
    origin.suspected = origin.module;
    return;
  }
  const bool is_suspect = !origin.suspect.empty();
  if (is_suspect && !op.has_weights) return;
  ModuleAudit& module =
      audit_.modules[is_suspect ? origin.suspected : origin.module];
  take_worst((module.*type_->in_module).output, change);
  if (!is_overflow && !is_suspect) return;
  blame(module, is_suspect ? origin.suspect : op.name + " overflows");
  // Later operations are compared as if this module were in fp32, so that this
  // fault does not affect them.
  if (is_overflow) result = own = wide;
  own.variable_data().copy_(right);
  origin.error = 0;
  origin.suspect.clear();
}

size_t PrecisionProbe::index_of(const std::string& module) {
  std::vector<ModuleAudit>& all = audit_.modules;
  const auto at = std::ranges::find(all, module, &ModuleAudit::name);
  const size_t index = at - all.begin();
  if (at == all.end()) all.push_back({.name = module});
  return index;
}

void PrecisionProbe::blame(ModuleAudit& module, const std::string& fault) {
  TypeAudit& model = audit_.*type_->in_model;
  model.is_sound = false;
  if (std::ranges::count(model.keep_fp32, module.name) > 0) return;
  model.keep_fp32.push_back(module.name);
  (module.*type_->in_module).fault = fault;
}

}  // namespace tern
