// Learner::predict, get_preds and tta: passes that collect the predictions.

#include <algorithm>
#include <string>

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/loop.h"

namespace tern {

void loop::choose_loss_by_data(LearnerParts& l) {
  const bool is_known = !l.data.classes.empty() || !l.data.outputs.empty();
  if (l.options.loss || is_known || !l.step.host_targets.empty()) return;
  for (const auto& loader : {l.data.valid, l.data.train}) {
    if (!loader || loader->dataset().size() == 0) continue;
    const Tensors targets = loader->dataset().get_batch({0}, {}).targets;
    if (targets.size() == 1 && (targets[0].scalar_type() == torch::kLong ||
                                targets[0].is_floating_point())) {
      loop::choose_loss(l, targets);
    }
    return;
  }
}

// Does not guess a softmax: the model may contain one, or its loss may
// interpret the numbers differently, and a program may want them unchanged.
void loop::warn_of_raw_outputs(LearnerParts& l, const torch::Tensor& output) {
  const Loss& loss = l.options.loss;
  if (l.raw_outputs == RawOutputs::warned_of || !loss ||
      loss.knows_activation()) {
    return;
  }
  const bool is_described = !l.data.outputs.empty();
  if (is_described && l.data.outputs[0].activation) return;
  const OutputInfo info = output_info(l.data, loss)[0];
  const bool has_probabilities = info.kind != TargetKind::number &&
                                 info.kind != TargetKind::boxes &&
                                 info.kind != TargetKind::points;
  if (!has_probabilities) return;
  std::string range;
  if (output.defined()) {
    if (output.numel() == 0) return;
    const bool has_pixels = output.dim() > 2;
    if (has_pixels != (info.kind == TargetKind::mask)) {  // plain numbers
      l.raw_outputs = RawOutputs::are_fine;
      return;
    }
    const double least = output.min().item<double>();
    const double most = output.max().item<double>();
    constexpr double kRounding = 1e-3;  // rounding error of 16-bit numbers
    if (!(least < -kRounding) && !(most > 1 + kRounding)) {
      l.raw_outputs = RawOutputs::are_fine;
      return;
    }
    range = fmt::format(", from {:.3g} to {:.3g}", least, most);
  } else if (l.raw_outputs == RawOutputs::are_fine) {
    return;
  }
  l.raw_outputs = RawOutputs::warned_of;
  const bool is_alone =
      output.defined() && (output.dim() == 1 || output.size(1) == 1);
  const char* const usual = info.kind == TargetKind::multi_category || is_alone
                                ? "sigmoid"
                                : "softmax";
  l.options.sink->warning(fmt::format(
      "The loss is {}, which does not determine how to turn the model's "
      "outputs into probabilities: predictions are the raw outputs{}. If these "
      "are logits, set learn.data().outputs{} = {}Activation::{}{}, or "
      ".activation(Activation::{}) of the Loss; if no activation is needed, "
      "use Activation::none.",
      loss.name(),
      range,
      is_described ? "[0].activation" : "",
      is_described ? "" : "{{.activation = ",
      usual,
      is_described ? "" : "}}",
      usual));
}

namespace {

Tensors activated(LearnerParts& l) {
  loop::choose_loss_by_data(l);
  Tensors outputs =
      activate(l.state.outputs, output_info(l.data, l.options.loss));
  if (!outputs.empty()) loop::warn_of_raw_outputs(l, outputs[0]);
  return outputs;
}

Tensors on_cpu(Tensors tensors) {
  for (torch::Tensor& tensor : tensors) tensor = tensor.cpu();
  return tensors;
}

torch::Tensor mixed(
    const torch::Tensor& plain,
    const Tensors& augmented,
    const TtaOptions& options) {
  torch::Tensor sum = augmented[0], largest = augmented[0];
  for (size_t i = 1; i < augmented.size(); ++i) {
    sum = sum + augmented[i];
    largest = torch::maximum(largest, augmented[i]);
  }
  if (options.use_max) return torch::maximum(largest, plain);
  return torch::lerp(sum / static_cast<double>(options.n), plain, options.beta);
}

bool has_pixels(const Tensors& outputs) {
  return std::ranges::any_of(outputs, [](const torch::Tensor& output) {
    return output.defined() && output.dim() > 2;
  });
}

void mirror_images(Batch& batch, const BatchTransformContext&) {
  TERN_CHECK_VALUE(
      batch.inputs.at(0).dim() == 4,
      "[Learner::tta] the outputs are per pixel, but the first input is {}; "
      "expected images [N, C, H, W]. Use get_preds.",
      shapes_of({batch.inputs[0]}));
  for (torch::Tensor& input : batch.inputs) {
    const bool is_bytes = input.scalar_type() == torch::kByte;  // [N, H, W, C]
    if (input.dim() == 4) input = input.flip(is_bytes ? 2 : 3);
  }
}

// Predictions for flipped images, with pixels flipped back.
Predictions mirrored_predictions(Learner& learn, const DataLoader& loader) {
  auto& transforms = learn.data().batch_transforms;
  transforms.emplace_back(mirror_images);
  const auto end = c10::make_scope_exit([&] { transforms.pop_back(); });
  Predictions result = learn.get_preds(loader);
  for (torch::Tensor& output : result.outputs) {
    if (output.defined() && output.dim() > 2) output = output.flip(-1);
  }
  return result;
}

/// Concatenates each output, or target, over all batches.
Tensors join(const std::vector<Tensors>& batches, const char* what) {
  Tensors joined;
  for (size_t i = 0; !batches.empty() && i < batches[0].size(); ++i) {
    Tensors parts;
    const Tensors* misfit = nullptr;
    for (const Tensors& batch : batches) {
      parts.push_back(batch.at(i));
      const auto sizes = parts.back().sizes(), first = parts[0].sizes();
      if (sizes.empty() || sizes.slice(1) != first.slice(1)) misfit = &batch;
    }
    TERN_CHECK_VALUE(
        !misfit || i > 0,
        "[Learner::get_preds] the first {} of the first batch is {}, and of "
        "another batch {}; expected [N, ...] with the same sizes after N. Give "
        "the model inputs of one size (sequences with "
        "SequencePadding::fixed_length), or call predict for each sample.",
        what,
        shapes_of({parts[0]}),
        shapes_of({misfit->at(0)}));
    joined.push_back(misfit ? torch::Tensor() : torch::cat(parts));
  }
  return joined;
}

// Returns the loader itself, or a loader of the same samples that neither
// shuffles, nor augments, nor drops the last batch. If the user set a sampler,
// it determines the samples and their order.
DataLoader without_training(const DataLoader& loader) {
  DataLoaderOptions options = loader.options();
  const bool shuffles = options.shuffle && !options.sampler;
  if (!options.training && !options.drop_last && !shuffles) return loader;
  options.training = options.drop_last = options.shuffle = false;
  return DataLoader(loader.dataset_ptr(), options);
}

Predictions
predictions_of(Learner& learn, const DataLoader& loader, bool with_losses) {
  LearnerParts& l = parts_of(learn);
  std::vector<Tensors> outputs, targets;
  Tensors losses;
  std::vector<int64_t> indices;
  loop::evaluate(l, loader, /*with_loss=*/false, [&] {
    const Tensors& host_targets = l.step.host_targets;
    if (host_targets.size() == 1) loop::choose_loss(l, host_targets);
    outputs.push_back(on_cpu(activated(l)));
    // A callback may have replaced the loader's batch.
    const std::vector<int64_t>& rows = l.step.sample_indices;
    indices.insert(indices.end(), rows.begin(), rows.end());
    targets.emplace_back();
    for (const torch::Tensor& target : host_targets) {
      targets.back().push_back(target.cpu().clone());
    }
    if (with_losses) {
      TORCH_CHECK_VALUE(
          !host_targets.empty(),
          "[Learner::get_preds] with_losses is set, but the data has no "
          "targets; expected targets. Omit with_losses.");
      l.options.loss.check_class_indices(l.state.outputs, host_targets);
      loop::in_forward_precision(l, [&] {
        const Tensors& targets_of_batch = l.state.batch_data.targets;
        losses.push_back(
            l.options.loss.per_sample(l.state.outputs, targets_of_batch)
                .to(torch::kCPU, torch::kFloat));
      });
    }
  });
  Predictions result{
      .outputs = join(outputs, "output"),
      .all_targets = join(targets, "target"),
      .info = output_info(l.data, l.options.loss),
      .indices = std::move(indices)};
  if (!losses.empty()) result.losses = torch::cat(losses);
  if (!result.outputs.empty()) result.preds = result.outputs[0];
  if (!result.all_targets.empty()) result.targets = result.all_targets[0];
  return result;
}

// Returns a pass's outputs for the given samples. An augmented pass has more
// samples than other passes, because it replaces the images that they leave
// out.
Tensors outputs_of_samples(
    const Predictions& all,
    const std::vector<int64_t>& indices) {
  if (all.indices == indices) return all.outputs;
  std::vector<int64_t> rows;
  for (size_t row = 0; row < all.indices.size(); ++row) {
    if (rows.size() < indices.size() &&
        all.indices[row] == indices[rows.size()]) {
      rows.push_back(static_cast<int64_t>(row));
    }
  }
  TERN_CHECK_VALUE(
      rows.size() == indices.size(),
      "[Learner::tta] sample {} could be read in the first pass but not in a "
      "later one; expected the same samples in every pass. Check the disk.",
      indices[rows.size()]);
  const torch::Tensor chosen = torch::tensor(rows, torch::kLong);
  Tensors outputs;
  for (const torch::Tensor& output : all.outputs) {
    outputs.push_back(
        output.defined() ? output.index_select(0, chosen) : output);
  }
  return outputs;
}

}  // namespace

Tensors loop::sample_outputs(LearnerParts& l, at::TensorList inputs) {
  Batch batch;
  for (const torch::Tensor& input : inputs) {
    TORCH_CHECK_VALUE(
        input.defined() && (input.dim() > 0 || inputs.size() > 1 ||
                            !input.is_floating_point()),
        "[Learner::predict] the sample is undefined or a 0-dim floating-point "
        "number; expected one input of the model without the batch dimension.");
    batch.inputs.push_back(input.unsqueeze(0));
  }
  TORCH_CHECK_VALUE(
      !inputs.empty(),
      "[Learner::predict] there is no input; expected the inputs of one "
      "sample.");
  EvalScope eval(l);
  loop::start_batch(l, std::move(batch));
  loop::run(l, Event::batch_begin);
  loop::forward(l, /*with_loss=*/false);
  Tensors outputs;
  for (const torch::Tensor& output : activated(l)) {
    outputs.push_back((output.dim() > 0 ? output[0] : output).cpu());
  }
  eval.end();
  return outputs;
}

Prediction Learner::predict(at::TensorList inputs) {
  const Tensors outputs = loop::sample_outputs(*parts_, inputs);
  return decode(outputs, output_info(parts_->data, parts_->options.loss));
}

Predictions Learner::get_preds(Split split) {
  const DataLoader& loader = parts_->data.loader(split);
  // A training loader's sampler may draw at random.
  return get_preds(loader.options().training ? loader.in_order() : loader);
}

Predictions Learner::get_preds(const DataLoader& loader, bool with_losses) {
  return predictions_of(*this, without_training(loader), with_losses);
}

Predictions Learner::tta(Split split, const TtaOptions& options) {
  TERN_CHECK_VALUE(
      options.n > 0 && options.beta >= 0 && options.beta <= 1,
      "[Learner::tta] n is {} and beta is {}; expected at least one pass "
      "and a weight from 0 to 1.",
      options.n,
      options.beta);
  const TargetKind kind =
      output_info(parts_->data, parts_->options.loss)[0].kind;
  TORCH_CHECK_VALUE(
      kind != TargetKind::boxes && kind != TargetKind::points,
      "[Learner::tta] the model predicts boxes or points, which move with each "
      "transform of an image; expected predictions that can be averaged. Use "
      "get_preds.");
  const DataLoader& loader = parts_->data.loader(split);
  Predictions result = get_preds(loader.in_order());
  TORCH_CHECK_VALUE(
      result.preds.defined(),
      "[Learner::tta] the split is empty; expected at least one sample.");
  std::vector<Tensors> passes;
  TtaOptions mixing = options;
  if (has_pixels(result.outputs)) {
    // The pixels of randomly warped images would not match.
    passes = {outputs_of_samples(
        mirrored_predictions(*this, loader.in_order()),
        result.indices)};
    mixing.n = 1;
    mixing.beta = 0.5;
  }
  const DataLoader augmented = loader.in_order(/*augments=*/true);
  while (std::ssize(passes) < mixing.n) {
    // Batch transforms augment although the model is not in training.
    parts_->evaluation.augmented_pass = std::ssize(passes);
    const auto end = c10::make_scope_exit(
        [&] { parts_->evaluation.augmented_pass.reset(); });
    passes.push_back(outputs_of_samples(
        predictions_of(*this, augmented, /*with_losses=*/false),
        result.indices));
  }
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    torch::Tensor& plain = result.outputs[i];
    Tensors augmented_ones;
    for (const Tensors& pass : passes) augmented_ones.push_back(pass.at(i));
    if (plain.defined()) plain = mixed(plain, augmented_ones, mixing);
  }
  result.preds = result.outputs[0];
  return result;
}

}  // namespace tern
