#include "tern/learner/distributed/data_parallel.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/cuda.h>
#include <torch/nn/module.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/model_around.h"

namespace tern {

namespace {

using Devices = std::vector<torch::Device>;

/// Backward of copying a parameter to the replicas: sums their gradients in
/// order, on the parameter's device.
struct AddReplicaGradients final : torch::autograd::Node {
  explicit AddReplicaGradients(const torch::Tensor& parameter)
      : Node(torch::autograd::collect_next_edges(parameter)),
        device(parameter.device()) {}

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& grads) override {
    torch::Tensor sum;
    for (const torch::Tensor& grad : grads) {
      if (!grad.defined()) continue;  // this replica did not use it
      const torch::Tensor here = grad.to(device, /*non_blocking=*/true);
      sum = sum.defined() ? sum + here : here;
    }
    return {sum};
  }

  torch::Device device;
};

using torch::nn::Module;

bool has_clone(const Module& module) {
  const torch::NoGradGuard no_grad;
  try {
    return module.clone() != nullptr;
  } catch (const c10::Error&) {
    return false;
  }
}

// Of the modules that contain the parameter or buffer of this name, returns the
// outermost without clone(), or else the innermost: "inner (InnerImpl)".
std::string owner_of(const Module& module, const std::string& name) {
  std::string owner = "the model";
  for (const auto& inner : module.named_modules()) {
    if (inner.key().empty() || !name.starts_with(inner.key() + ".")) continue;
    owner = fmt::format("{} ({})", inner.key(), inner.value()->name());
    if (!has_clone(*inner.value())) break;
  }
  return owner;
}

void copy_training_flags(Module& replica, const Module& module) {
  const auto originals = module.modules(), copies = replica.modules();
  // From outer to inner modules, because `train` also sets the inner modules.
  for (size_t i = 0; i < std::min(originals.size(), copies.size()); ++i) {
    const bool is_training = originals[i]->is_training();
    if (copies[i]->is_training() != is_training) copies[i]->train(is_training);
  }
}

// \param value_of  Returns the value that a tensor of the module must have in
//                  the clone.
void check_values(
    const Module& module,
    const Module& clone,
    const std::function<torch::Tensor(const torch::Tensor&)>& value_of) {
  auto tensors = module.named_parameters(), cloned = clone.named_parameters();
  for (const auto& b : module.named_buffers()) {
    tensors.insert(b.key(), b.value());
  }
  for (const auto& b : clone.named_buffers()) cloned.insert(b.key(), b.value());
  for (const auto& t : tensors) {
    const torch::Tensor* const copy = cloned.find(t.key());
    bool is_copied = copy && copy->sizes() == t.value().sizes();
    if (is_copied) {
      const torch::Tensor value = value_of(t.value()).to(copy->device());
      const torch::Tensor both_nan = copy->ne(*copy) & value.ne(value);
      is_copied = (copy->eq(value) | both_nan).all().item<bool>();
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_copied,
        fmt::format(
            "[parallel_model] a clone of the model does not have \"{}\": {} "
            "cannot be cloned. Derive it from torch::nn::Cloneable, with a "
            "reset() that registers its parameters and modules, or implement "
            "clone() in its parent module.",
            t.key(),
            owner_of(module, t.key())));
  }
}

// For a plain nn::Module inside a Cloneable module, LibTorch's clone silently
// keeps the module that the clone's reset() has created, with different
// weights. To detect this, each tensor temporarily contains a number, which
// must appear in the clone.
void check_clone(const std::shared_ptr<Module>& module) {
  const torch::NoGradGuard no_grad;
  auto tensors = module->named_parameters();
  for (const auto& b : module->named_buffers()) {
    tensors.insert(b.key(), b.value());
  }
  Tensors values;
  for (const auto& t : tensors) values.push_back(t.value().detach());
  std::map<c10::TensorImpl*, double> numbers;  // tied weights share a number
  for (const auto& t : tensors) {
    const auto number = static_cast<double>(1 + numbers.size() % 100);
    numbers.try_emplace(t.value().unsafeGetTensorImpl(), number);
  }
  std::shared_ptr<Module> clone;
  {
    const auto put_back = c10::make_scope_exit([&] {
      for (size_t i = 0; i < tensors.size(); ++i) {
        tensors[i].value().set_data(values[i]);
      }
    });
    for (size_t i = 0; i < tensors.size(); ++i) {
      torch::Tensor& tensor = tensors[i].value();
      const double number = numbers.at(tensor.unsafeGetTensorImpl());
      const auto one = torch::full({}, number, values[i].options());
      tensor.set_data(one.expand(values[i].sizes()));
    }
    try {
      clone = module->clone();
    } catch (const c10::Error& error) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          false,
          "[parallel_model] the model cannot be cloned: ",
          message_of(error));
    }
  }
  check_values(*module, *clone, [&](const torch::Tensor& tensor) {
    const double number = numbers.at(tensor.unsafeGetTensorImpl());
    return torch::full({}, number, tensor.options());
  });
}

/// Returns `module` itself for its own device and clones for the other devices.
/// The clones' gradients are added, in order, to the gradients of `module`.
std::vector<std::shared_ptr<Module>> replicate(
    const std::shared_ptr<Module>& module,
    const Devices& devices,
    bool compares) {
  std::vector<std::shared_ptr<Module>> replicas = {module};
  const torch::NoGradGuard no_grad;
  for (size_t i = 1; i < devices.size(); ++i) {
    replicas.push_back(module->clone(devices[i]));
    if (!compares) continue;
    check_values(*module, *replicas.back(), [](const auto& own) {
      return own;
    });
  }
  if (replicas.size() == 1) return replicas;
  const auto sources = module->named_parameters();
  for (const auto& source : sources) {
    const bool is_trained = source.value().requires_grad();
    std::shared_ptr<AddReplicaGradients> add;
    if (is_trained) add = std::make_shared<AddReplicaGradients>(source.value());
    for (size_t i = 1; i < replicas.size(); ++i) {
      // The handle shares the replica's tensor; this changes only its history.
      torch::Tensor parameter = replicas[i]->named_parameters()[source.key()];
      parameter.requires_grad_(is_trained);
      if (is_trained) torch::autograd::set_history(parameter, add);
    }
  }
  for (size_t i = 1; i < replicas.size(); ++i) {
    copy_training_flags(*replicas[i], *module);
  }
  return replicas;
}

Devices all_cuda_devices() {
  Devices devices;
  for (c10::DeviceIndex i = 0; i < torch::cuda::device_count(); ++i) {
    devices.emplace_back(torch::kCUDA, i);
  }
  return devices;
}

// {torch::kCUDA} means the current GPU, as when tensors are created.
Devices with_indices(Devices devices) {
  for (torch::Device& device : devices) {
    if (device.has_index() || !device.is_cuda()) continue;
    if (!torch::cuda::is_available()) continue;  // `check` reports it
    device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  }
  return devices;
}

void check(const Model& model, const Devices& devices) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      model.module(),
      "[data_parallel] a TorchScript module cannot be replicated; expected a "
      "model written in C++.");
  TORCH_CHECK_VALUE(
      !devices.empty(),
      "[data_parallel] there is no CUDA device; name the devices to use, for "
      "example {torch::kCPU}.");
  for (const torch::Tensor& parameter : model.module()->parameters()) {
    TERN_CHECK_VALUE(
        parameter.device() == devices[0],
        "[data_parallel] the module has a parameter on {}, and the first "
        "device is {}; call module->to({}) first.",
        parameter.device().str(),
        devices[0].str(),
        devices[0].str());
  }
}

// Returns the inputs of each replica, on its device; a small batch has fewer
// parts than there are devices.
std::vector<Tensors> split(const Tensors& inputs, const Devices& devices) {
  std::vector<Tensors> parts;
  for (const torch::Tensor& input : inputs) {
    TORCH_CHECK_VALUE(
        input.defined() && input.dim() > 0 && input.size(0) > 0,
        "[data_parallel] the input is undefined, 0-dim or empty; expected "
        "[N, ...] with N >= 1.");
    TERN_CHECK_VALUE(
        input.size(0) == inputs[0].size(0),
        "[data_parallel] one input has {} samples and another {}; expected the "
        "same number.",
        inputs[0].size(0),
        input.size(0));
    const Tensors chunks = input.chunk(static_cast<int64_t>(devices.size()));
    parts.resize(chunks.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      parts[i].push_back(chunks[i].to(devices[i], /*non_blocking=*/true));
    }
  }
  return parts;
}

Tensors join(const std::vector<Tensors>& of_replicas, torch::Device device) {
  Tensors joined;
  for (size_t k = 0; k < of_replicas[0].size(); ++k) {
    Tensors pieces;
    for (const Tensors& outputs : of_replicas) {
      TORCH_CHECK_VALUE(
          outputs.at(k).dim() > 0,
          "[data_parallel] the model returned a 0-dim tensor; expected [N, "
          "...]. Compute the loss outside the model.");
      pieces.push_back(outputs[k].to(device, /*non_blocking=*/true));
    }
    joined.push_back(pieces.size() == 1 ? pieces[0] : torch::cat(pieces));
  }
  return joined;
}

// Runs each job in its own thread, in the autocast and gradient mode of the
// caller. (LibTorch's parallel_apply does not transfer the autocast state.)
// Jobs of one device run one after the other, because they share a random
// number generator, and dropout would differ if their order changed. Waits for
// all jobs, then rethrows the exception of the first job in the list that
// failed.
void run_together(
    const std::vector<std::function<void()>>& jobs,
    const Devices& devices) {
  std::vector<std::exception_ptr> errors(jobs.size());
  std::vector<std::promise<void>> ended(jobs.size());
  const auto wait_for_device = [&](size_t i) {
    for (size_t before = i; before-- > 0;) {
      if (devices[before] != devices[i]) continue;
      return ended[before].get_future().wait();
    }
  };
  const auto run = [&](size_t i) {
    wait_for_device(i);
    try {
      jobs[i]();
    } catch (...) {
      errors[i] = std::current_exception();
    }
    ended[i].set_value();
  };
  {
    const at::ThreadLocalState caller;  // includes the gradient mode
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < jobs.size(); ++i) {
      threads.emplace_back(amp::wrap([&, i] {
        const at::ThreadLocalStateGuard as_in_caller(caller);
        run(i);
      }));
    }
    if (!jobs.empty()) run(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

class ParallelModel final : public ModelAround {
 public:
  /// \param compares  Compare each clone with the model.
  ParallelModel(const Model& model, Devices devices, bool compares = false)
      : ModelAround(model), devices_(std::move(devices)), compares_(compares) {}

  Tensors forward(const Tensors& inputs) override {
    if (inputs.empty()) return model_.forward(inputs);
    const std::vector<Tensors> parts = split(inputs, devices_);
    Devices devices = devices_;
    devices.resize(parts.size(), devices[0]);
    const auto replicas = replicate(model_.module(), devices, compares_);
    std::vector<Tensors> outputs(parts.size());
    std::vector<std::function<void()>> jobs;
    for (size_t i = 0; i < parts.size(); ++i) {
      jobs.emplace_back([&, i] {
        outputs[i] = model_.with_module(replicas[i]).impl()->forward(parts[i]);
      });
    }
    run_together(jobs, devices);
    return join(outputs, devices[0]);
  }

  std::shared_ptr<ModelImpl> with_module(
      const std::shared_ptr<torch::nn::Module>& module) const override {
    return model_.with_module(module).impl();
  }

 private:
  Devices devices_;
  bool compares_;
};

}  // namespace

// Several threads may call the same model, so none of its tensors is modified.
torch::Tensor data_parallel(
    const Model& model,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices) {
  const Devices chosen = devices ? with_indices(*devices) : all_cuda_devices();
  check(model, chosen);
  return ParallelModel(
             model.with_module(model.module()),
             chosen,
             /*compares=*/true)
      .forward({input})
      .at(0);
}

Model parallel_model(const Model& model, std::vector<torch::Device> devices) {
  devices = with_indices(std::move(devices));
  check(model, devices);
  if (devices.size() > 1) check_clone(model.module());
  // Avoids a parallel model inside a parallel model.
  Model plain = model.with_module(model.module());
  return Model(
      std::make_shared<ParallelModel>(std::move(plain), std::move(devices)));
}

Learner& Learner::to_parallel() {
  return to_parallel(all_cuda_devices());
}

Learner& Learner::to_parallel(const std::vector<torch::Device>& devices) {
  TORCH_CHECK(
      !parts_->state.is_fitting,
      "[Learner::to_parallel] this Learner is training; call it before or "
      "after fit.");
  if (devices.size() > 1 && parts_->precision) {
    parts_->precision->check_parallel();
  }
  parts_->model = parallel_model(parts_->model, devices);
  parts_->step.is_parallel = devices.size() > 1;
  return *this;
}

}  // namespace tern
