#include <exception>
#include <string>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>
#include <torch/script.h>

#include "tern/data/error_text.h"
#include "tern/learner/model.h"

namespace tern {

namespace {

// A TorchScript module. Its layers are known by the names of their classes.
class JitModel final : public ModelImpl {
 public:
  explicit JitModel(const torch::jit::Module& module) : module_(module) {}

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
    return collect([](const torch::jit::Module& module) {
      return module.named_parameters(/*recurse=*/false);
    });
  }

  std::vector<ModelTensor> buffers() const override {
    return collect([](const torch::jit::Module& module) {
      return module.named_buffers(/*recurse=*/false);
    });
  }

  std::vector<ModelTensor> state() const override {
    std::vector<ModelTensor> tensors;
    each_module([&](const std::string& prefix, const torch::jit::Module& m) {
      add_tensors(prefix, m, m.named_parameters(/*recurse=*/false), tensors);
      add_tensors(prefix, m, m.named_buffers(/*recurse=*/false), tensors);
    });
    return tensors;
  }

  void train(bool on) override { module_.train(on); }
  bool is_training() const override { return module_.is_training(); }
  void to(torch::Device device) override { module_.to(device); }

 private:
  // The interpreter's errors are a listing of the program, and the reason after
  // it; those of wrong arguments are the reason, and are no c10::Error.
  torch::jit::IValue run(const Tensors& inputs) {
    try {
      return module_.forward({inputs.begin(), inputs.end()});
    } catch (const std::exception& error) {
      std::string text = message_of(error);
      constexpr std::string_view kName = "\nRuntimeError: ";
      const size_t name = text.rfind(kName);
      if (name != std::string::npos) text.erase(0, name + kName.size());
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

  // The root first, each module before those in it.
  template <class Visit>
  void each_module(const Visit& visit) const {
    for (const auto& module : module_.named_modules()) {
      visit(module.name.empty() ? "" : module.name + ".", module.value);
    }
  }

  template <class Items>
  static void add_tensors(
      const std::string& prefix,
      const torch::jit::Module& module,
      const Items& items,
      std::vector<ModelTensor>& tensors) {
    for (const auto& item : items) {
      tensors.push_back({prefix + item.name, item.value, kind_of(module)});
    }
  }

  template <class Get>
  std::vector<ModelTensor> collect(const Get& get) const {
    std::vector<ModelTensor> tensors;
    each_module([&](const std::string& prefix, const torch::jit::Module& m) {
      add_tensors(prefix, m, get(m), tensors);
    });
    std::unordered_set<c10::TensorImpl*> seen;
    std::erase_if(tensors, [&](const ModelTensor& item) {
      return !seen.insert(item.tensor.unsafeGetTensorImpl()).second;
    });
    return tensors;
  }

  torch::jit::Module module_;
};

}  // namespace

Model::Model(const torch::jit::Module& module)
    : impl_(std::make_shared<JitModel>(module)) {}

}  // namespace tern
