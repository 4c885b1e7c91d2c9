#include "tern/learner/weights/torchscript.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/script.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/weights/lora.h"

namespace tern {

namespace {

namespace jit = torch::jit;
using UnitPtr = std::shared_ptr<jit::CompilationUnit>;

// "torch::nn::BatchNorm2dImpl" is "BatchNorm2d" in Python.
std::string class_name(const torch::nn::Module& module) {
  std::string name = module.name();
  name.erase(0, name.find_last_of(":)") + 1);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0 && c != '_'; });
  return "__torch__." + (name.empty() ? "Module" : name);
}

// A TorchScript module without methods, of the same tensors under the same
// names.
jit::Module mirror(const torch::nn::Module& module, const UnitPtr& unit) {
  jit::Module copy(
      c10::QualifiedName(class_name(module)),
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

// A tensor alone, several as a tuple.
jit::IValue to_value(Tensors outputs) {
  if (outputs.size() == 1) return outputs[0];
  std::vector<jit::IValue> values(outputs.begin(), outputs.end());
  return c10::ivalue::Tuple::create(std::move(values));
}

void add_forward(jit::Module& traced, Model& model, const Tensors& inputs) {
  const auto run = [&](const jit::Stack& stack) -> jit::Stack {
    Tensors tensors;
    for (const jit::IValue& value : stack) tensors.push_back(value.toTensor());
    return {to_value(model.forward(tensors))};
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

void check_same(const Tensors& expected, const Tensors& traced) {
  bool is_same = expected.size() == traced.size();
  for (size_t i = 0; is_same && i < expected.size(); ++i) {
    is_same = expected[i].sizes() == traced[i].sizes() &&
              torch::allclose(expected[i], traced[i], 1e-4, 1e-5, true);
  }
  TORCH_CHECK_VALUE(
      is_same,
      "[export_torchscript] the traced module's output differs from the "
      "model's; expected a deterministic forward. Take out of it what is "
      "random or counts its calls.");
}

}  // namespace

void export_torchscript(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs) {
  TORCH_CHECK_VALUE(
      !example_inputs.empty() && model.module(),
      "[export_torchscript] there is no example input, or the model is "
      "TorchScript already; expected a batch and a module of C++. "
      "torch::jit::Module::save writes one of TorchScript.");
  const torch::NoGradGuard no_grad;
  const auto restore = c10::make_scope_exit(
      [&, was_training = model.is_training()] { model.train(was_training); });
  model.eval();
  const MergedLora merged(model);
  const Tensors expected = model.forward(example_inputs);
  jit::Module traced =
      mirror(*model.module(), std::make_shared<jit::CompilationUnit>());
  add_forward(traced, model, example_inputs);
  check_same(expected, Model(traced).forward(example_inputs));
  std::ostringstream bytes;
  traced.save(bytes);
  AtomicFile file(path);
  file.write(bytes.str());
  file.commit();
}

Model load_torchscript_trusted(const std::filesystem::path& path) {
  ByteFile file(path);  // for an error that names it
  try {
    return jit::load(path.string(), torch::kCPU);
  } catch (const c10::Error& error) {
    throw DataError(
        path.string(),
        fmt::format(
            "LibTorch cannot read it as TorchScript: {}. Expected what "
            "export_torchscript or Python's torch.jit.save writes",
            error.what_without_backtrace()));
  }
}

void export_torchscript(
    Learner& learn,
    const std::filesystem::path& path,
    const Tensors& example_inputs) {
  const MergedLora merged(learn.model());
  // A 16-bit model computes in fp32 with its masters, then as it did.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept;
  const auto restore = c10::make_scope_exit([&] {
    for (auto& [tensor, data] : kept) tensor.set_data(data);
  });
  const StateDict exact = learn.state_dict();
  for (ModelTensor& t : learn.model().state()) {
    const torch::Tensor* const value = exact.find(t.name);
    if (value == nullptr || value->scalar_type() == t.tensor.scalar_type()) {
      continue;
    }
    kept.emplace_back(t.tensor, t.tensor.data());
    t.tensor.set_data(value->detach());
  }
  Tensors inputs;
  for (const torch::Tensor& input : example_inputs) {
    inputs.push_back(input.to(learn.data().device));
  }
  export_torchscript(learn.model(), path, inputs);
}

}  // namespace tern
