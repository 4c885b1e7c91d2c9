#include <unordered_set>

#include <fmt/format.h>
#include <torch/script.h>

#include "tern/learner/model.h"

namespace tern {

namespace {

// A TorchScript module. Its layers are known by the names of their classes.
class JitModel final : public ModelImpl {
 public:
  explicit JitModel(const torch::jit::Module& module) : module_(module) {}

  Tensors forward(const Tensors& inputs) override {
    const torch::jit::IValue output =
        module_.forward({inputs.begin(), inputs.end()});
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

  void train(bool on) override { module_.train(on); }
  bool is_training() const override { return module_.is_training(); }
  void to(torch::Device device) override { module_.to(device); }

 private:
  static LayerKind kind_of(const torch::jit::Module& module) {
    const std::string name =
        module.type()->name() ? module.type()->name()->name() : "";
    if (name.find("BatchNorm") != std::string::npos) {
      return LayerKind::batch_norm;
    }
    return name.find("Norm") != std::string::npos ? LayerKind::other_norm
                                                  : LayerKind::other;
  }

  template <class Get>
  std::vector<ModelTensor> collect(const Get& get) const {
    std::vector<ModelTensor> tensors;
    std::unordered_set<c10::TensorImpl*> seen;
    for (const auto& module : module_.named_modules()) {
      const LayerKind kind = kind_of(module.value);
      for (const auto& item : get(module.value)) {
        if (!seen.insert(item.value.unsafeGetTensorImpl()).second) continue;
        tensors.push_back(
            {module.name.empty() ? item.name : module.name + "." + item.name,
             item.value,
             kind});
      }
    }
    return tensors;
  }

  torch::jit::Module module_;
};

}  // namespace

Model::Model(const torch::jit::Module& module)
    : impl_(std::make_shared<JitModel>(module)) {}

}  // namespace tern
