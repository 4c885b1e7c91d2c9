// Passes over data without training: validation and predictions.

#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/learner/loop.h"

namespace tern {

double metric_value(
    const std::vector<MetricValue>& metrics,
    const std::string& name,
    const char* what) {
  std::vector<std::string> names;
  for (const MetricValue& metric : metrics) {
    if (metric.name == name) return metric.value;
    names.push_back(metric.name);
  }
  C10_THROW_ERROR(
      ValueError,
      fmt::format(
          "[{}[\"{}\"]] there is no such metric; {}.",
          what,
          name,
          names.empty()
              ? std::string("there is none: the Learner has no "
                            "metrics or no validation data")
              : fmt::format("there are: {}", fmt::join(names, ", "))));
}

// Metrics keep their names, so that a callback can ask for them in an epoch
// whose validation did not come: NaN.
void loop::forget_validation(LearnerParts& l) {
  l.state.valid_loss = std::numeric_limits<double>::quiet_NaN();
  l.state.last_metrics.clear();
  if (!l.data.valid) return;
  for (const Metric& metric : l.options.metrics) {
    l.state.last_metrics.push_back({.name = metric.name()});
  }
}

void loop::validate_after_epoch(LearnerParts& l) {
  if (!l.data.valid || l.state.stop_training || l.state.is_trial) return;
  Validation validation = evaluate_metrics(l, Split::valid, /*is_common=*/true);
  // A pass that was stopped in the middle says nothing about the whole set.
  if (l.state.stop_training) return;
  l.state.valid_loss = validation.loss;
  l.state.last_metrics = std::move(validation.metrics);
}

Validation Learner::validate(Split split) {
  return loop::evaluate_metrics(*parts_, split, /*is_common=*/false);
}

Validation
loop::evaluate_metrics(LearnerParts& l, Split split, bool is_common) {
  for (Metric& metric : l.options.metrics) metric.reset();
  Tensors losses;
  std::vector<double> sizes;
  const DataLoader& whole = l.data.loader(split);
  is_common = is_common && l.communicator;
  const DataLoader& loader =
      is_common ? shard_of(l, whole, /*equal_batches=*/false) : whole;
  l.begins_common_evaluation = is_common;
  evaluate(l, loader, /*with_loss=*/true, [&] {
    losses.push_back(l.state.loss);
    sizes.push_back(static_cast<double>(l.state.batch_data.size()));
    for (Metric& metric : l.options.metrics) {
      metric.update(l.state.outputs, l.state.batch_data.targets);
    }
    if (is_common) agree_to_stop_validation(l, whole);
  });
  TORCH_CHECK_VALUE(
      !losses.empty() || l.state.stop_training,
      fmt::format(
          "[Learner::validate] the {} loader has no batch; expected at least "
          "one sample.",
          to_string(split)));
  Validation result;
  if (losses.empty()) return result;
  // One wait for the device: the losses of all batches and every metric.
  const torch::Tensor all = torch::stack(losses).to(torch::kDouble);
  const torch::Tensor weights =
      torch::tensor(sizes, torch::kDouble).to(all.device());
  const torch::Tensor sums = torch::stack({all.dot(weights), weights.sum()});
  if (is_common) add_up_over_ranks(l, sums);
  Tensors values = {sums[0] / sums[1]};
  for (const Metric& metric : l.options.metrics) {
    values.push_back(metric.compute().to(torch::kDouble).reshape({}));
  }
  const torch::Tensor read = torch::stack(values).cpu();
  result.loss = read.const_data_ptr<double>()[0];
  for (size_t i = 0; i < l.options.metrics.size(); ++i) {
    result.metrics.push_back(
        {l.options.metrics[i].name(), read.const_data_ptr<double>()[i + 1]});
  }
  return result;
}

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

// While it lives, batch transforms augment though the model does not train.
class AugmentedPass {
 public:
  AugmentedPass(LearnerParts& l, int64_t pass) : l_(l) {
    l_.augmented_pass = pass;
  }
  ~AugmentedPass() { l_.augmented_pass.reset(); }
  AugmentedPass(const AugmentedPass&) = delete;

 private:
  LearnerParts& l_;
};

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
        activate(parts_->state.outputs.at(0), loop::activation(*parts_)).cpu());
    if (!parts_->host_targets.empty())
      targets.push_back(parts_->host_targets[0].clone());
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
  TORCH_CHECK_VALUE(
      options.n > 0 && options.beta >= 0 && options.beta <= 1,
      fmt::format(
          "[Learner::tta] n is {} and beta is {}; expected at least one pass "
          "and a weight from 0 to 1.",
          options.n,
          options.beta));
  const DataLoader& loader = parts_->data.loader(split);
  Predictions result = get_preds(loader.in_order());
  TORCH_CHECK_VALUE(
      result.preds.defined() && result.preds.dim() <= 2,
      "[Learner::tta] the model answers for every pixel, and those of "
      "augmented images do not lie over each other, or there is no data; use "
      "get_preds.");
  const DataLoader augmented = loader.in_order(/*augments=*/true);
  torch::Tensor sum, largest;
  for (int64_t pass = 0; pass < options.n; ++pass) {
    const AugmentedPass augments(*parts_, pass);
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
