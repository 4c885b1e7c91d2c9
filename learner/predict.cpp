#include <optional>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/autocast.h"
#include "tern/learner/scopes.h"

namespace tern {

// Before the first batch with a target, class names tell what is learnt.
Activation Learner::activation() const {
  if (options_.loss) return options_.loss.activation();
  return data_.classes.empty() ? Activation::none : Activation::softmax;
}

Prediction Learner::predict(const torch::Tensor& sample) {
  TORCH_CHECK_VALUE(
      sample.defined() && sample.dim() > 0,
      "[Learner::predict] the sample is undefined or 0-dim; expected one input "
      "of the model without the batch dimension.");
  EvalScope eval(*this);
  start_batch({{sample.unsqueeze(0)}, {}});
  run(&Callback::on_batch_begin);
  {
    std::optional<AutocastGuard> autocast;
    if (state_.autocast_dtype) {
      autocast.emplace(data_.device, state_.autocast_dtype);
    }
    state_.outputs = forward(state_.batch_data.inputs);
    run(&Callback::on_loss_begin);
  }
  Prediction prediction;
  prediction.probabilities =
      activate(state_.outputs.at(0), activation())[0].cpu();
  if (!data_.classes.empty() && prediction.probabilities.dim() == 1) {
    prediction.index = prediction.probabilities.argmax().item<int64_t>();
    if (prediction.index < static_cast<int64_t>(data_.classes.size())) {
      prediction.label = data_.classes[prediction.index];
    }
  }
  eval.end();
  return prediction;
}

}  // namespace tern
