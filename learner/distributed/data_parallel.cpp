#include "tern/learner/distributed/data_parallel.h"

#include <exception>
#include <thread>

#include <ATen/ThreadLocalState.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/cuda.h>

#include "tern/learner/precision/autocast.h"

namespace tern::detail {

namespace {

/// Backward of "the replicas use the parameter": adds up their gradients, in
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

}  // namespace

Modules replicate(
    const std::shared_ptr<torch::nn::Module>& module,
    const std::vector<torch::Device>& devices) {
  Modules replicas = {module};
  const torch::NoGradGuard no_grad;
  for (size_t i = 1; i < devices.size(); ++i) {
    replicas.push_back(module->clone(devices[i]));
  }
  if (replicas.size() == 1) return replicas;
  const auto sources = module->named_parameters();
  for (const auto& source : sources) {
    if (!source.value().requires_grad()) continue;
    const auto add = std::make_shared<AddReplicaGradients>(source.value());
    for (size_t i = 1; i < replicas.size(); ++i) {
      // The handle shares the replica's tensor; only its history changes.
      torch::Tensor parameter = replicas[i]->named_parameters()[source.key()];
      torch::autograd::set_history(parameter, add);
    }
  }
  return replicas;
}

void run_together(std::vector<std::function<void()>> jobs) {
  std::vector<std::exception_ptr> errors(jobs.size());
  const auto run = [&](size_t i) {
    try {
      jobs[i]();
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    const at::ThreadLocalState caller;  // among others, its gradient mode
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

std::vector<torch::Device> all_cuda_devices() {
  std::vector<torch::Device> devices;
  const auto count = static_cast<int>(torch::cuda::device_count());
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(torch::kCUDA, static_cast<c10::DeviceIndex>(i));
  }
  return devices;
}

void check_devices(
    const torch::nn::Module& module,
    const std::vector<torch::Device>& devices) {
  TORCH_CHECK_VALUE(
      !devices.empty(),
      "[data_parallel] there is no CUDA device; name the devices to use, for "
      "example {torch::kCPU}.");
  for (const torch::Tensor& parameter : module.parameters()) {
    TORCH_CHECK_VALUE(
        parameter.device() == devices[0],
        fmt::format(
            "[data_parallel] the module has a parameter on {}, and the first "
            "device is {}; call module->to({}) first.",
            parameter.device().str(),
            devices[0].str(),
            devices[0].str()));
  }
}

void check_can_be_split(const torch::Tensor& input) {
  TORCH_CHECK_VALUE(
      input.defined() && input.dim() > 0 && input.size(0) > 0,
      "[data_parallel] the input is undefined, 0-dim or empty; expected "
      "[N, ...] with N >= 1.");
}

}  // namespace tern::detail
