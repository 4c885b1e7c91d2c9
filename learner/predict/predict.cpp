// Learner::predict, get_preds and tta: passes that keep the answers.

#include <c10/util/ScopeExit.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

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

// Before the first batch with a target, class names tell what is learnt, or the
// target of some sample.
Activation activation_of(LearnerParts& l) {
  if (!l.options.loss && !l.data.classes.empty()) return Activation::softmax;
  if (!l.options.loss) choose_loss(l);
  return l.options.loss ? l.options.loss.activation() : Activation::none;
}

}  // namespace

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
      activate(parts_->state.outputs.at(0), activation_of(*parts_))[0].cpu();
  if (!parts_->data.classes.empty() && prediction.probabilities.dim() == 1) {
    prediction.index = prediction.probabilities.argmax().item<int64_t>();
    if (prediction.index < static_cast<int64_t>(parts_->data.classes.size())) {
      prediction.label = parts_->data.classes[prediction.index];
    }
  }
  eval.end();
  return prediction;
}

Predictions Learner::get_preds(Split split) {
  const DataLoader& loader = parts_->data.loader(split);
  return loader.options().training ? get_preds(loader.in_order())
                                   : get_preds(loader);
}

Predictions Learner::get_preds(const DataLoader& loader, bool with_losses) {
  Tensors preds, targets, losses;
  loop::evaluate(*parts_, loader, /*with_loss=*/false, [&] {
    if (!parts_->options.loss && !parts_->host_targets.empty()) {
      parts_->options.loss = Loss::for_targets(parts_->host_targets);
    }
    preds.push_back(
        activate(parts_->state.outputs.at(0), activation_of(*parts_)).cpu());
    if (!parts_->host_targets.empty()) {
      targets.push_back(parts_->host_targets[0].clone());
    }
    if (with_losses) {
      TORCH_CHECK_VALUE(
          !parts_->host_targets.empty(),
          "[Learner::get_preds] the losses are asked for, but the data have no "
          "targets; leave out with_losses.");
      parts_->options.loss.check_class_indices(
          parts_->state.outputs,
          parts_->host_targets);
      losses.push_back(parts_->options.loss
                           .per_sample(
                               parts_->state.outputs,
                               parts_->state.batch_data.targets)
                           .to(torch::kCPU, torch::kFloat));
    }
  });
  Predictions result;
  if (!preds.empty()) result.preds = torch::cat(preds);
  if (!targets.empty()) result.targets = torch::cat(targets).cpu();
  if (!losses.empty()) result.losses = torch::cat(losses);
  return result;
}

Predictions Learner::tta(Split split, const TtaOptions& options) {
  TERN_CHECK_VALUE(
      options.n > 0 && options.beta >= 0 && options.beta <= 1,
      "[Learner::tta] n is {} and beta is {}; expected at least one pass "
      "and a weight from 0 to 1.",
      options.n,
      options.beta);
  const DataLoader& loader = parts_->data.loader(split);
  Predictions result = get_preds(loader.in_order());
  TORCH_CHECK_VALUE(
      result.preds.defined() && result.preds.dim() <= 2,
      "[Learner::tta] the split is empty or the outputs are per pixel, and "
      "pixels of augmented images do not match; use get_preds.");
  const DataLoader augmented = loader.in_order(/*augments=*/true);
  torch::Tensor sum, largest;
  for (int64_t pass = 0; pass < options.n; ++pass) {
    // Batch transforms augment though the model does not train.
    parts_->augmented_pass = pass;
    const auto end =
        c10::make_scope_exit([&] { parts_->augmented_pass.reset(); });
    const torch::Tensor preds = get_preds(augmented).preds;
    sum = pass == 0 ? preds : sum + preds;
    largest = pass == 0 ? preds : torch::maximum(largest, preds);
  }
  result.preds = options.use_max ? torch::maximum(largest, result.preds)
                                 : torch::lerp(
                                       sum / static_cast<double>(options.n),
                                       result.preds,
                                       options.beta);
  return result;
}

}  // namespace tern
