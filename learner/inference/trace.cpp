#include "tern/learner/inference/trace.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/utils.h>

#include "tern/learner/model.h"
#include "tern/learner/module_names.h"

namespace tern {

namespace {

namespace jit = torch::jit;
using UnitPtr = std::shared_ptr<jit::CompilationUnit>;

std::string script_class_name(const torch::nn::Module& module) {
  std::string name = module_class_name(module.name());
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0 && c != '_'; });
  const bool is_name = !name.empty() && std::isdigit(name[0]) == 0;
  return "__torch__." + (is_name ? name : "Module");
}

// Returns a TorchScript module without methods that has the same tensors under
// the same names.
jit::Module mirror(const torch::nn::Module& module, const UnitPtr& unit) {
  jit::Module copy(
      c10::QualifiedName(script_class_name(module)),
      unit,
      /*shouldMangle=*/true);
  copy.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) {
      copy.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
    }
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) copy.register_buffer(item.key(), item.value());
  }
  for (const auto& item : module.named_children()) {
    copy.register_module(item.key(), mirror(*item.value(), unit));
  }
  return copy;
}

// Returns a single tensor unchanged, several tensors as a tuple.
jit::IValue to_value(Tensors outputs) {
  if (outputs.size() == 1) return outputs[0];
  std::vector<jit::IValue> values(outputs.begin(), outputs.end());
  return c10::ivalue::Tuple::create(std::move(values));
}

void add_forward(
    jit::Module& traced,
    const Tensors& inputs,
    const std::function<Tensors(const Tensors&)>& forward) {
  const auto run = [&](const jit::Stack& stack) -> jit::Stack {
    Tensors tensors;
    for (const jit::IValue& value : stack) tensors.push_back(value.toTensor());
    return {to_value(forward(tensors))};
  };
  const auto no_names = [](const torch::Tensor&) { return std::string(); };
  const auto graph = jit::tracer::trace(
                         {inputs.begin(), inputs.end()},
                         run,
                         no_names,
                         /*strict=*/true,
                         /*force_outplace=*/false,
                         &traced)
                         .first->graph;
  const auto unit = traced._ivalue()->compilation_unit();
  traced.type()->addMethod(unit->create_function(
      c10::QualifiedName(*traced.type()->name(), "forward"),
      graph,
      /*shouldMangle=*/true));
}

/// True if an operator draws random numbers.
bool draws(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (!name) return false;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  return op && op->hasTag(at::Tag::nondeterministic_seeded);
}

thread_local bool has_drawn = false;

}  // namespace

torch::jit::Module trace(
    Model& model,
    const Tensors& inputs,
    const std::function<Tensors(const Tensors&)>& forward) {
  jit::Module traced =
      mirror(*model.module(), std::make_shared<jit::CompilationUnit>());
  add_forward(traced, inputs, [&](const Tensors& given) {
    return forward ? forward(given) : model.forward(given);
  });
  return traced;
}

bool outputs_alike(const Tensors& expected, const Tensors& traced) {
  return std::ranges::equal(
      expected,
      traced,
      [](const torch::Tensor& own, const torch::Tensor& other) {
        if (own.sizes() != other.sizes()) return false;
        const torch::Tensor numbers = own.to(torch::kDouble);
        const torch::Tensor finite = numbers.nan_to_num(0, 0, 0).abs();
        const double largest =
            own.numel() == 0 ? 0 : finite.max().item<double>();
        return torch::allclose(
            numbers,
            other.to(torch::kDouble),
            0,
            1e-4 * largest,
            /*equal_nan=*/true);
      });
}

KeptRandomState::KeptRandomState(torch::Device device)
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(
              [](const at::RecordFunction& function)
                  -> std::unique_ptr<at::ObserverContext> {
                has_drawn |= draws(function);
                return nullptr;
              })
              .scopes({at::RecordScope::FUNCTION}))) {
  had_drawn_ = std::exchange(has_drawn, false);
  std::vector<torch::Device> devices = {torch::kCPU};
  if (!device.is_cpu()) devices.push_back(device);
  for (const torch::Device each : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(each);
    const std::lock_guard lock(generator.mutex());
    kept_.emplace_back(generator, generator.get_state());
  }
}

KeptRandomState::~KeptRandomState() {
  at::removeCallback(handle_);
  const bool is_restored = has_drawn;
  has_drawn = had_drawn_;
  if (!is_restored) return;
  for (auto& [generator, state] : kept_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

Tensors to_device(const Tensors& tensors, torch::Device device) {
  Tensors moved;
  for (const torch::Tensor& tensor : tensors) {
    moved.push_back(tensor.to(device));
  }
  return moved;
}

}  // namespace tern
