#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

namespace detail {

using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

/// `module` itself for its own device, clones for the other places. Gradients
/// of the clones are added up, in order, into those of `module`.
Modules replicate(
    const std::shared_ptr<torch::nn::Module>& module,
    const std::vector<torch::Device>& devices);

/// Runs all at once, one thread each, in the autocast and gradient mode of the
/// caller. Waits for all, then throws what the first one in order threw.
void run_together(std::vector<std::function<void()>> jobs);

std::vector<torch::Device> all_cuda_devices();

/// \throws c10::ValueError if there is none, or the module is not on the first.
void check_devices(
    const torch::nn::Module& module,
    const std::vector<torch::Device>& devices);

/// \throws c10::ValueError unless the input is [N, ...] with N >= 1.
void check_can_be_split(const torch::Tensor& input);

}  // namespace detail

/// Calls `modules[i]->forward(inputs[i])` at the same time, one thread each, in
/// the caller's autocast and gradient mode: every replica computes in the same
/// types. (LibTorch's own parallel_apply leaves autocast behind in all threads
/// but the caller's, so that under bf16 replica 0 answers in bf16 and replica 1
/// in float.)
///
/// \return what each forward returned, in order.
/// \throws what the first failing forward threw, once all have ended.
template <class M>
Tensors parallel_apply(
    const std::vector<std::shared_ptr<M>>& modules,
    const Tensors& inputs) {
  TORCH_CHECK_VALUE(
      modules.size() == inputs.size(),
      "[parallel_apply] there are ",
      modules.size(),
      " modules and ",
      inputs.size(),
      " inputs; expected as many of both.");
  Tensors outputs(modules.size());
  std::vector<std::function<void()>> jobs;
  for (size_t i = 0; i < modules.size(); ++i) {
    jobs.emplace_back([&, i] { outputs[i] = modules[i]->forward(inputs[i]); });
  }
  detail::run_together(std::move(jobs));
  return outputs;
}

/// Computes one batch on several devices: splits `input`, runs a replica of
/// `module` on each part at the same time, and joins the outputs. Gradients
/// come back to `module`, added up in the order of the devices. PyTorch's
/// `nn.parallel.data_parallel`, in one process.
///
///   tern::AutocastGuard autocast(torch::kCUDA);
///   auto pred = tern::data_parallel(net, x);  // on all GPUs
///
/// Buffers (BatchNorm's statistics) are kept from the first replica, as in
/// Python. A device may be named twice, a CPU too.
///
/// \param module   Holder of, or shared_ptr to, a module with
///                 forward(Tensor) -> Tensor that implements clone().
/// \param input    [N, ...]; N >= 1. Fewer samples than devices leave the last
///                 devices without work.
/// \param devices  The first one is the module's. Unset: all CUDA devices.
/// \param dim      The dimension that is split and joined.
/// \return the joined output, on the first device.
template <class M>
torch::Tensor data_parallel(
    const std::shared_ptr<M>& module,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {},
    int64_t dim = 0) {
  detail::check_can_be_split(input);
  std::vector<torch::Device> places =
      devices ? *devices : detail::all_cuda_devices();
  detail::check_devices(*module, places);
  Tensors parts = input.chunk(static_cast<int64_t>(places.size()), dim);
  places.resize(parts.size(), places[0]);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i].to(places[i], /*non_blocking=*/true);
  }
  std::vector<std::shared_ptr<M>> replicas;
  for (const auto& replica : detail::replicate(module, places)) {
    replicas.push_back(std::dynamic_pointer_cast<M>(replica));
  }
  Tensors outputs = parallel_apply(replicas, parts);
  for (torch::Tensor& output : outputs) {
    output = output.to(places[0], /*non_blocking=*/true);
  }
  return torch::cat(outputs, dim);
}

template <class Impl>
torch::Tensor data_parallel(
    const torch::nn::ModuleHolder<Impl>& module,
    const torch::Tensor& input,
    const std::optional<std::vector<torch::Device>>& devices = {},
    int64_t dim = 0) {
  return data_parallel(module.ptr(), input, devices, dim);
}

}  // namespace tern
