// Learner::predictor: a copy of the model for other threads.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/export/card_of.h"
#include "tern/learner/export/embedded_torchscript.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/predict/predictor.h"

namespace tern {
namespace {

using torch::nn::Module;

bool are_equal(const torch::Tensor& one, const torch::Tensor& other) {
  if (one.sizes() != other.sizes()) return false;
  const torch::Tensor both_nan = one.ne(one) & other.ne(other);
  return (one.eq(other) | both_nan).all().item<bool>();
}

// When a Cloneable module has a plain nn::Module as a child, LibTorch's clone()
// silently does not copy that child: the clone contains the original child, or
// a child that reset() created.
bool is_whole_clone(const Module& clone, const Module& module) {
  const auto originals = module.modules(), copies = clone.modules();
  for (const auto& copy : copies) {
    if (std::ranges::count(originals, copy) > 0) return false;
  }
  auto tensors = module.named_parameters(), cloned = clone.named_parameters();
  for (const auto& b : module.named_buffers()) {
    tensors.insert(b.key(), b.value());
  }
  for (const auto& b : clone.named_buffers()) cloned.insert(b.key(), b.value());
  return copies.size() == originals.size() && tensors.size() == cloned.size() &&
         std::ranges::all_of(tensors, [&](const auto& t) {
           const torch::Tensor* const copy = cloned.find(t.key());
           return copy && are_equal(*copy, t.value());
         });
}

/// Unset if there is no clone() that copies the whole model.
std::optional<Model> copy_of(const Model& model) {
  const std::shared_ptr<Module> module = model.module();
  if (!module) {
    const std::shared_ptr<ModelImpl> copy = model.impl()->copy();
    return copy ? std::optional<Model>(copy) : std::nullopt;
  }
  try {
    const std::shared_ptr<Module> clone = module->clone();
    if (!is_whole_clone(*clone, *module)) return std::nullopt;
    return model.with_module(clone);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// Returns the Learner's network with its own copy of the weights, in fp32.
Model independent_model(Learner& learn, const ModelCard& card) {
  const MergedLora merged(learn.model(), learn.state_dict());
  const StateDict weights = learn.state_dict();
  if (is_architecture(card.architecture.name)) {
    Model built = build_model(card.architecture);
    built.load_state_dict(weights);
    return built;
  }
  if (const std::optional<Model> copy = copy_of(learn.model())) {
    for (const ModelTensor& t : copy->state()) {
      torch::Tensor(t.tensor).set_data(weights[t.name].detach().clone());
    }
    return *copy;
  }
  try {
    return model_of_graph(graph_of(learn, /*half=*/false), "the model's copy");
  } catch (const c10::ValueError& error) {
    C10_THROW_ERROR(
        ValueError,
        "[Learner::predictor] the model has neither a registered architecture "
        "nor clone(), so it is copied as its graph, as in export_model. " +
            message_of(error));
  }
}

// Waits for the kernels of this thread's stream, because streams of other
// threads do not wait for them.
void wait_for(torch::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  devices.synchronizeDevice(
      device.has_index() ? device.index() : devices.getDevice().index());
}

}  // namespace

Predictor Learner::predictor() {
  return predictor({.device = data().device});
}

Predictor Learner::predictor(const PredictorOptions& options) {
  const ModelCard card = card_of(*this, {});
  const torch::NoGradGuard no_grad;
  // Creating a network draws random weights.
  const KeptRandomState random(data().device);
  PredictorOptions exact = options;
  exact.exact = true;  // same as get_preds
  Predictor copy(independent_model(*this, card), card, exact);
  wait_for(options.device);
  return copy;
}

}  // namespace tern
