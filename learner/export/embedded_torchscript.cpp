#include "tern/learner/export/embedded_torchscript.h"

#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <torch/script.h>

#include "tern/data/formats/error.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/export/fp32_weights.h"
#include "tern/learner/inference/dynamic_trace.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

std::string bytes_of(const torch::jit::Module& module) {
  std::ostringstream stream;
  module.save(stream);
  return std::move(stream).str();
}

torch::jit::Module module_of(std::string bytes) {
  std::istringstream stream(std::move(bytes));
  return torch::jit::load(stream, torch::kCPU);
}

// Returns the model's inputs for the first two validation samples, in fp32.
// Uses two samples, because a batch size of 1 broadcasts.
Tensors example_inputs(LearnerParts& l) {
  const Split split = l.data.valid ? Split::valid : Split::train;
  auto batches = l.data.loader(split).in_order().epoch(0);
  auto batch = batches.next();
  // A batch is shorter if samples cannot be read.
  while (batch && batch->size() < 2 && !batch->left_out.empty()) {
    batch = batches.next();
  }
  TORCH_CHECK_VALUE(
      batch && batch->size() >= 2,
      "[Learner::export_model] the model has no architecture, so its graph is "
      "traced with a batch of the data, which has fewer than two samples; "
      "provide more data, or derive the module from HasArchitecture.");
  EvalScope eval(l);
  loop::start_batch(l, std::move(*batch));
  loop::run(l, Event::batch_begin);
  Tensors inputs;
  for (const torch::Tensor& input : l.state.batch_data.inputs) {
    const torch::Tensor two = input.narrow(0, 0, 2);
    inputs.push_back(two.is_floating_point() ? two.to(torch::kFloat) : two);
  }
  eval.end();
  return inputs;
}

}  // namespace

bool fits_half(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ||
         tensor.abs().max().item<double>() <=
             static_cast<double>(std::numeric_limits<at::Half>::max());
}

torch::Tensor graph_of(Learner& learn, bool half) {
  TORCH_CHECK_VALUE(
      learn.model().module(),
      "[Learner::export_model] the model is TorchScript; expected a module "
      "written in C++. Save a TorchScript module with "
      "torch::jit::Module::save.");
  const Tensors inputs = example_inputs(parts_of(learn));
  const torch::NoGradGuard no_grad;
  // A trace does not include computations of other threads on other devices.
  Model model = learn.model().with_module(learn.model().module());
  const EvalModeGuard eval(model);
  const Fp32Weights fp32(learn);
  const KeptRandomState random(inputs[0].device());
  const torch::jit::Module module = dynamic_trace(
      model,
      inputs,
      {.call = "Learner::export_model",
       .cure =
           "The graph is traced with two samples of the data. Compute with "
           "whole batches, not sample by sample, and use the batch size only "
           "in multiples. Or derive the module from HasArchitecture, which "
           "Predictor builds with register_architecture and without a graph."});
  std::string bytes = bytes_of(module);
  if (half) {
    const torch::jit::Module copy = module_of(std::move(bytes));
    for (ModelTensor& t : Model(copy).state()) {
      if (t.tensor.scalar_type() == torch::kFloat &&
          t.layer != LayerKind::batch_norm && fits_half(t.tensor)) {
        t.tensor.set_data(t.tensor.detach().to(torch::kHalf));
      }
    }
    bytes = bytes_of(copy);
  }
  torch::Tensor result = torch::empty(std::ssize(bytes), torch::kByte);
  std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
  return result;
}

Model model_of_graph(const torch::Tensor& bytes, const std::string& file) {
  const torch::Tensor flat = bytes.contiguous();
  try {
    Model model = module_of(std::string(
        static_cast<const char*>(flat.const_data_ptr()),
        flat.nbytes()));
    for (ModelTensor& t : model.state()) {
      if (t.tensor.scalar_type() == torch::kHalf) {
        t.tensor.set_data(t.tensor.detach().to(torch::kFloat));
      }
    }
    return model;
  } catch (const c10::Error& error) {
    throw DataError(
        file,
        fmt::format(
            "has a graph that LibTorch cannot read: {}",
            error.what_without_backtrace()));
  }
}

}  // namespace tern
