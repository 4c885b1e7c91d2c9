#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/loop.h"
#include "tern/learner/scopes.h"

namespace tern {

namespace {

void choose_loss(LearnerParts& l) {
  for (const auto& loader : {l.data.valid, l.data.train}) {
    if (!loader || loader->dataset().size() == 0) continue;
    const Tensors targets = loader->dataset().get_batch({0}, {}).targets;
    if (targets.size() == 1 && (targets[0].scalar_type() == torch::kLong ||
                                targets[0].is_floating_point())) {
      l.options.loss = Loss::for_targets(targets);
    }
    return;
  }
}

}  // namespace

// Before the first batch with a target, class names tell what is learnt, or the
// target of some sample.
Activation loop::activation(LearnerParts& l) {
  if (!l.options.loss && !l.data.classes.empty()) return Activation::softmax;
  if (!l.options.loss) choose_loss(l);
  return l.options.loss ? l.options.loss.activation() : Activation::none;
}

Prediction Learner::predict(const torch::Tensor& sample) {
  TORCH_CHECK_VALUE(
      sample.defined() && sample.dim() > 0,
      "[Learner::predict] the sample is undefined or 0-dim; expected one input "
      "of the model without the batch dimension.");
  EvalScope eval(*parts_);
  loop::start_batch(*parts_, {{sample.unsqueeze(0)}, {}});
  loop::run(*parts_, Event::batch_begin);
  loop::forward(*parts_, /*with_loss=*/false);
  Prediction prediction;
  prediction.probabilities =
      activate(parts_->state.outputs.at(0), loop::activation(*parts_))[0].cpu();
  if (!parts_->data.classes.empty() && prediction.probabilities.dim() == 1) {
    prediction.index = prediction.probabilities.argmax().item<int64_t>();
    if (prediction.index < static_cast<int64_t>(parts_->data.classes.size())) {
      prediction.label = parts_->data.classes[prediction.index];
    }
  }
  eval.end();
  return prediction;
}

}  // namespace tern
