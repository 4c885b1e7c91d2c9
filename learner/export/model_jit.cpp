#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/script.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/inference/program_checks.h"
#include "tern/learner/model.h"

namespace tern {

namespace {

namespace jit = torch::jit;

/// Returns a copy of `forward` that checks the states of its LSTMs, GRUs and
/// RNNs; null if there are none. The original stays unchanged, since the caller
/// may save the module.
std::shared_ptr<jit::GraphFunction> checked_forward(const jit::Module& module) {
  const auto forward = module.find_method("forward");
  if (!forward) return nullptr;
  forward->function().ensure_defined();
  const auto graph = forward->graph()->copy();
  jit::Inline(*graph);
  if (!add_state_checks(*graph)) return nullptr;
  auto checked = std::make_shared<jit::GraphFunction>(
      forward->function().qualname(),
      graph,
      nullptr);
  checked->setSchema(forward->function().getSchema());
  return checked;
}

/// Collects the fixed modes of operators in a block, including nested blocks.
void find_fixed_modes(const jit::Block& block, FixedModes& modes) {
  for (const jit::Node* node : block.nodes()) {
    for (const jit::Block* inner : node->blocks()) {
      find_fixed_modes(*inner, modes);
    }
    const c10::FunctionSchema* const schema = node->maybeSchema();
    if (!schema || !node->kind().is_aten()) continue;
    const auto constant = [&](const char* argument) {
      const auto at = schema->argumentIndexWithName(argument);
      return at ? jit::toIValue(node->input(*at)) : std::nullopt;
    };
    auto is_training = constant("training");               // of batch_norm
    if (!is_training) is_training = constant("train");     // of dropout, lstm
    if (!is_training || !is_training->isBool()) continue;  // none, or computed
    // Without running statistics, batch_norm does the same in both modes.
    const auto running_mean = constant("running_mean");
    if (running_mean && running_mean->isNone()) continue;
    auto probability = constant("p");
    if (!probability) probability = constant("dropout");
    if (probability && probability->toScalar().toDouble() == 0) continue;
    std::string name = node->kind().toUnqualString();
    if (name.ends_with('_')) name.pop_back();
    (is_training->toBool() ? modes.training : modes.evaluation)
        .insert(std::move(name));
  }
}

// A TorchScript module. Layer kinds are recognized by class name.
class JitModel final : public ModelImpl {
 public:
  explicit JitModel(const torch::jit::Module& module)
      : module_(module), checked_(checked_forward(module)) {}

  Tensors forward(const Tensors& inputs) override {
    const torch::jit::IValue output = run(inputs);
    if (output.isTensor()) return {output.toTensor()};
    if (output.isTensorList()) return output.toTensorVector();
    Tensors tensors;
    if (output.isTuple()) {
      for (const auto& element : output.toTupleRef().elements()) {
        if (!element.isTensor()) break;
        tensors.push_back(element.toTensor());
      }
      if (tensors.size() == output.toTupleRef().elements().size()) {
        return tensors;
      }
    }
    TORCH_CHECK_TYPE(
        false,
        fmt::format(
            "[Model] the TorchScript module returned a {}; expected a tensor, "
            "a list of tensors or a tuple of tensors.",
            output.tagKind()));
  }

  std::vector<ModelTensor> parameters() const override {
    return once_each(tensors(/*parameters=*/true, /*buffers=*/false));
  }
  std::vector<ModelTensor> buffers() const override {
    return once_each(tensors(/*parameters=*/false, /*buffers=*/true));
  }
  std::vector<ModelTensor> state() const override {
    return tensors(/*parameters=*/true, /*buffers=*/true);
  }

  FixedModes fixed_modes() const override {
    FixedModes modes;
    const auto forward = module_.find_method("forward");
    if (!forward) return modes;
    forward->function().ensure_defined();
    const auto graph = forward->graph()->copy();
    jit::Inline(*graph);
    find_fixed_modes(*graph->block(), modes);
    return modes;
  }

  void train(bool on) override { module_.train(on); }
  bool is_training() const override { return module_.is_training(); }
  void to(torch::Device device) override { module_.to(device); }
  // A deepcopy would share the program and the records of its optimizer.
  std::shared_ptr<ModelImpl> copy() const override {
    std::stringstream bytes;
    module_.save(bytes);
    return std::make_shared<JitModel>(torch::jit::load(bytes));
  }

 private:
  // The interpreter's errors list the program before the reason. Errors about
  // wrong arguments have only the reason and are not a c10::Error.
  torch::jit::IValue run(const Tensors& inputs) {
    try {
      if (!checked_) return module_.forward({inputs.begin(), inputs.end()});
      jit::Stack stack(inputs.begin(), inputs.end());
      stack.insert(stack.begin(), module_._ivalue());
      return (*checked_)(std::move(stack));
    } catch (const std::exception& error) {
      std::string text = message_of(error);
      constexpr std::string_view kName = "\nRuntimeError: ";
      const size_t name = text.rfind(kName);
      if (name != std::string::npos) text.erase(0, name + kName.size());
      if (text.starts_with('[')) C10_THROW_ERROR(ValueError, text);
      throw c10::Error({__func__, __FILE__, __LINE__}, text);
    }
  }

  static LayerKind kind_of(const torch::jit::Module& module) {
    const std::string name =
        module.type()->name() ? module.type()->name()->name() : "";
    if (name.find("BatchNorm") != std::string::npos) {
      return LayerKind::batch_norm;
    }
    return name.find("Norm") != std::string::npos ? LayerKind::other_norm
                                                  : LayerKind::other;
  }

  // The root first, and each module before its submodules.
  std::vector<ModelTensor> tensors(bool parameters, bool buffers) const {
    std::vector<ModelTensor> result;
    for (const auto& [name, module] : module_.named_modules()) {
      const std::string prefix = name.empty() ? "" : name + ".";
      const auto add = [&, kind = kind_of(module)](const auto& items) {
        for (const auto& item : items) {
          result.push_back({prefix + item.name, item.value, kind});
        }
      };
      if (parameters) add(module.named_parameters(/*recurse=*/false));
      if (buffers) add(module.named_buffers(/*recurse=*/false));
    }
    return result;
  }

  static std::vector<ModelTensor> once_each(std::vector<ModelTensor> tensors) {
    std::unordered_set<c10::TensorImpl*> seen;
    std::erase_if(tensors, [&](const ModelTensor& item) {
      return !seen.insert(item.tensor.unsafeGetTensorImpl()).second;
    });
    return tensors;
  }

  torch::jit::Module module_;
  std::shared_ptr<jit::GraphFunction> checked_;
};

}  // namespace

Model::Model(const torch::jit::Module& module)
    : impl_(std::make_shared<JitModel>(module)) {}

}  // namespace tern
