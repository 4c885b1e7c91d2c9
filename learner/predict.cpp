#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/scopes.h"

namespace tern {

// Before the first batch with a target, class names tell what is learnt, or the
// target of some sample.
Activation Learner::activation() {
  if (!options_.loss && !data_.classes.empty()) return Activation::softmax;
  if (!options_.loss) choose_loss();
  return options_.loss ? options_.loss.activation() : Activation::none;
}

void Learner::choose_loss() {
  for (const auto& loader : {data_.valid, data_.train}) {
    if (!loader || loader->dataset().size() == 0) continue;
    const Tensors targets = loader->dataset().get_batch({0}, {}).targets;
    if (targets.size() == 1 && (targets[0].scalar_type() == torch::kLong ||
                                targets[0].is_floating_point())) {
      options_.loss = Loss::for_targets(targets);
    }
    return;
  }
}

Prediction Learner::predict(const torch::Tensor& sample) {
  TORCH_CHECK_VALUE(
      sample.defined() && sample.dim() > 0,
      "[Learner::predict] the sample is undefined or 0-dim; expected one input "
      "of the model without the batch dimension.");
  EvalScope eval(*this);
  start_batch({{sample.unsqueeze(0)}, {}});
  run(Event::batch_begin);
  forward(/*with_loss=*/false);
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
