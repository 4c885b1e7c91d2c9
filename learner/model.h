#pragma once

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/state_dict.h"

namespace torch::jit {
struct Module;
}

namespace tern {

/// The kind of layer that a tensor belongs to. Precision and weight decay treat
/// normalization layers specially.
enum class LayerKind { batch_norm, other_norm, other };

/// A parameter or buffer of a model, by its name in the state dict.
struct ModelTensor {
  std::string name;  // "layer1.0.conv1.weight"
  torch::Tensor tensor;
  LayerKind layer = LayerKind::other;

  bool is_bias() const;
};

/// Operators of a TorchScript module, such as "batch_norm", whose mode is fixed
/// in its graph, as in a trace, so that train() and eval() do not change it.
struct FixedModes {
  std::set<std::string> training, evaluation;
};

/// The interface between a Model and the network that it holds.
class ModelImpl {
 public:
  virtual ~ModelImpl() = default;
  virtual Tensors forward(const Tensors& inputs) = 0;
  /// In order of registration, each tensor once.
  virtual std::vector<ModelTensor> parameters() const = 0;
  virtual std::vector<ModelTensor> buffers() const = 0;
  /// Like Python's state_dict: for each module its parameters and buffers,
  /// followed by its submodules. A tensor with two names is listed under both.
  virtual std::vector<ModelTensor> state() const = 0;
  virtual void train(bool on) = 0;
  virtual bool is_training() const = 0;
  virtual void to(torch::Device device) = 0;
  virtual FixedModes fixed_modes() const { return {}; }
  virtual std::shared_ptr<torch::nn::Module> module() const { return nullptr; }
  /// Returns a copy of the network that shares no memory with it; null if only
  /// `module()` can be cloned, or if no copy is possible.
  virtual std::shared_ptr<ModelImpl> copy() const { return nullptr; }
  /// Returns a model for another module of the same type as `module()`.
  virtual std::shared_ptr<ModelImpl> with_module(
      const std::shared_ptr<torch::nn::Module>&) const {
    return nullptr;
  }
};

namespace detail {

inline Tensors to_tensors(torch::Tensor output) {
  return {std::move(output)};
}
inline Tensors to_tensors(Tensors outputs) {
  return outputs;
}
template <class... T>
Tensors to_tensors(const std::tuple<T...>& outputs) {
  return std::apply([](const auto&... t) { return Tensors{t...}; }, outputs);
}

[[noreturn]] void no_such_forward(const std::string& module, size_t inputs);

template <class M>
Tensors call_forward(M& module, const Tensors& x) {
  if constexpr (requires(torch::Tensor t) { module.forward(t); }) {
    if (x.size() == 1) return to_tensors(module.forward(x[0]));
  }
  if constexpr (requires(torch::Tensor t) { module.forward(t, t); }) {
    if (x.size() == 2) return to_tensors(module.forward(x[0], x[1]));
  }
  if constexpr (requires(torch::Tensor t) { module.forward(t, t, t); }) {
    if (x.size() == 3) return to_tensors(module.forward(x[0], x[1], x[2]));
  }
  if constexpr (requires(torch::Tensor t) { module.forward(t, t, t, t); }) {
    if (x.size() == 4) {
      return to_tensors(module.forward(x[0], x[1], x[2], x[3]));
    }
  }
  // A Sequential's forward is a template that accepts any arguments, so the
  // error would only occur inside it.
  if constexpr (
      requires { module.forward(x); } &&
      !requires(torch::Tensor t) { module.forward(t, t, t, t); }) {
    return to_tensors(module.forward(x));
  }
  no_such_forward(module.name(), x.size());
}

/// The part of a Model that is the same for every nn::Module.
class NnModel : public ModelImpl {
 public:
  explicit NnModel(std::shared_ptr<torch::nn::Module> module);
  std::vector<ModelTensor> parameters() const override;
  std::vector<ModelTensor> buffers() const override;
  std::vector<ModelTensor> state() const override;
  void train(bool on) override { module_->train(on); }
  bool is_training() const override { return module_->is_training(); }
  void to(torch::Device device) override { module_->to(device); }
  std::shared_ptr<torch::nn::Module> module() const override { return module_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
};

template <class M>
class NnModelOf final : public NnModel {
 public:
  explicit NnModelOf(std::shared_ptr<M> module)
      : NnModel(module), module_(std::move(module)) {}
  Tensors forward(const Tensors& inputs) override {
    return call_forward(*module_, inputs);
  }
  std::shared_ptr<ModelImpl> with_module(
      const std::shared_ptr<torch::nn::Module>& module) const override {
    return std::make_shared<NnModelOf>(std::dynamic_pointer_cast<M>(module));
  }

 private:
  std::shared_ptr<M> module_;
};

}  // namespace detail

/// Any network, as a value. Copies share the network, like LibTorch's module
/// holders.
///
/// Converts implicitly from a module holder (`torch::nn::Sequential`, a user's
/// TORCH_MODULE), a shared_ptr to a module, or a TorchScript module. Its
/// `forward` takes one to four tensors or a vector of tensors, and returns a
/// tensor, a tuple of tensors or a vector of tensors.
class Model {
 public:
  template <class Impl>
  Model(torch::nn::ModuleHolder<Impl> holder)  // NOLINT: implicit on purpose
      : Model(holder.ptr()) {}

  template <class M>
    requires std::is_base_of_v<torch::nn::Module, M>
  // NOLINTNEXTLINE: implicit on purpose
  Model(std::shared_ptr<M> module)
      : impl_(std::make_shared<detail::NnModelOf<M>>(std::move(module))) {}

  template <class M>
    requires std::is_base_of_v<torch::nn::Module, M>
  Model(const M&) {  // NOLINT: as above
    static_assert(
        !sizeof(M),
        "[Model] expected a shared module: std::make_shared<Net>(...), or Net "
        "declared by TORCH_MODULE(Net) after a struct NetImpl");
  }

  Model(const torch::jit::Module& module);  // NOLINT: implicit on purpose
  /// \throws c10::ValueError for a null pointer.
  explicit Model(std::shared_ptr<ModelImpl> impl);
  // A move is a copy, because a Model always has a network.
  Model(const Model&) = default;
  Model& operator=(const Model&) = default;

  /// \throws c10::ValueError with the inputs' shapes and LibTorch's reason if
  ///         the network does not accept them.
  Tensors forward(const Tensors& inputs);
  std::vector<ModelTensor> parameters() const { return impl_->parameters(); }
  std::vector<ModelTensor> buffers() const { return impl_->buffers(); }
  /// Returns parameters and buffers in the order of Python's `state_dict`. A
  /// tensor with two names is listed twice.
  std::vector<ModelTensor> state() const { return impl_->state(); }
  void train(bool on = true) { impl_->train(on); }
  void eval() { impl_->train(false); }
  bool is_training() const { return impl_->is_training(); }
  FixedModes fixed_modes() const { return impl_->fixed_modes(); }
  void to(torch::Device device) { impl_->to(device); }
  /// Returns the module; null for a TorchScript module.
  std::shared_ptr<torch::nn::Module> module() const { return impl_->module(); }
  /// Returns a model that computes like this one, on one device, with the given
  /// module, which is a clone of `module()`, or `module()` itself.
  Model with_module(const std::shared_ptr<torch::nn::Module>& module) const {
    return Model(impl_->with_module(module));
  }
  const std::shared_ptr<ModelImpl>& impl() const { return impl_; }

  /// Returns parameters and buffers with the names and in the order of Python's
  /// `state_dict`. They share memory with the model.
  StateDict state_dict() const;

  /// Copies `state` into the parameters and buffers, converting devices and
  /// floating-point or integer dtypes. Two kinds of tensors may be missing:
  /// `num_batches_tracked`, which PyTorch before 0.4 did not have, and a tensor
  /// that `state` contains under another of its names.
  ///
  ///   LoadReport report = model.load_state_dict(
  ///       load_weights("resnet18.pth"),
  ///       {.strict = false, .ignore_mismatched_sizes = true});
  ///   fmt::print("{}\n", report.to_string());
  ///
  /// \throws c10::ValueError listing the tensors that are missing, unexpected
  ///         or of the wrong shape, if the options do not allow them, or if
  ///         none of the names belongs to the model. On failure nothing
  ///         changes.
  LoadReport load_state_dict(
      const StateDict& state,
      const LoadOptions& options = {});

 private:
  std::shared_ptr<ModelImpl> impl_;
};

}  // namespace tern
