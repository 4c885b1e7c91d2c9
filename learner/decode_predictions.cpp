#include "tern/learner/decode_predictions.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/detections.h"

namespace tern {

namespace {

TargetKind loss_kind(const Loss& loss, bool has_classes) {
  if (loss.is_multi_category()) return TargetKind::multi_category;
  return has_classes || loss.activation() != Activation::none
             ? TargetKind::category
             : TargetKind::number;
}

Activation usual_activation(TargetKind kind) {
  switch (kind) {
    case TargetKind::number:
    case TargetKind::boxes:
    case TargetKind::points:
      return Activation::none;
    case TargetKind::multi_category:
      return Activation::sigmoid;
    default:
      return Activation::softmax;
  }
}

// Returns a reference, because copying a thousand names would take longer than
// the work done with them.
const OutputInfo& info_at(const std::vector<OutputInfo>& info, size_t index) {
  static const OutputInfo numbers{.kind = TargetKind::number};
  return index < info.size() ? info[index] : numbers;
}

/// The kind of an output of shape [C] or [C, ...] or of a single number. The
/// classes of an image-like output are classes of its pixels, and a single
/// probability distinguishes two classes.
TargetKind kind_of(const torch::Tensor& output, const OutputInfo& info) {
  if (info.kind == TargetKind::number) return info.kind;
  if (info.kind == TargetKind::points) {
    const bool are_points = output.dim() == 2 && output.size(1) == 2;
    return are_points ? info.kind : TargetKind::number;
  }
  if (info.kind == TargetKind::boxes) return TargetKind::number;
  if (output.dim() > 1) {
    const bool has_classes =
        info.kind == TargetKind::mask ||
        info.activation.value_or(Activation::none) != Activation::none;
    return has_classes ? TargetKind::mask : TargetKind::number;
  }
  if (info.kind == TargetKind::mask) return TargetKind::number;
  return output.numel() == 1 && info.names.size() == 2 ? TargetKind::category
                                                       : info.kind;
}

/// True if each pixel may have any number of classes.
bool is_overlapping(const torch::Tensor& output, const OutputInfo& info) {
  return output.dim() > 1 && output.size(0) > 1 &&
         info.activation == Activation::sigmoid;
}

/// The probability of a class. A single output is the probability of the second
/// of two classes.
double probability_of(const torch::Tensor& probabilities, int64_t index) {
  const torch::Tensor all = probabilities.reshape({-1});
  if (all.numel() > 1) return all[index].item<double>();
  const auto second = all.item<double>();
  return index == 0 ? 1 - second : second;
}

void add_class(Prediction& prediction, int64_t index, const OutputInfo& info) {
  prediction.indices.push_back(index);
  prediction.labels.push_back(class_name(info.names, index));
}

void add_numbers(Prediction& prediction, const OutputInfo& info) {
  const torch::Tensor values =
      prediction.probabilities.to(torch::kDouble).reshape({-1});
  const double* const first = values.const_data_ptr<double>();
  prediction.numbers.assign(first, first + values.numel());
  std::vector<std::string> words;
  for (size_t i = 0; i < prediction.numbers.size(); ++i) {
    words.push_back(fmt::format(
        "{}{}{:.4g}",
        i < info.names.size() ? info.names[i] : "",
        i < info.names.size() ? " " : "",
        prediction.numbers[i]));
  }
  prediction.label = fmt::format("{}", fmt::join(words, ", "));
}

/// \param names  The names of the points; may be empty.
void add_points(Prediction& prediction, const std::vector<std::string>& names) {
  prediction.points = prediction.probabilities.to(torch::kFloat).contiguous();
  const float* place = prediction.points.const_data_ptr<float>();
  std::vector<std::string> words;
  for (int64_t i = 0; i < prediction.points.size(0); ++i, place += 2) {
    const bool has_name = i < std::ssize(names);
    words.push_back(fmt::format(
        "{} ({:.1f}, {:.1f})",
        has_name ? names[i] : fmt::format("point {}", i),
        place[0],
        place[1]));
  }
  prediction.label = fmt::format("{}", fmt::join(words, ", "));
}

Prediction decode_detector(const Tensors& outputs, const OutputInfo& info) {
  Prediction prediction{.probabilities = outputs[1], .kind = TargetKind::boxes};
  const torch::Tensor scores = outputs[1].to(torch::kDouble);
  const torch::Tensor labels = outputs[2].to(torch::kLong);
  const torch::Tensor found =
      (labels >= 0).logical_and(scores >= info.threshold).nonzero().view({-1});
  prediction.boxes = outputs[0].to(torch::kFloat).index_select(0, found);
  for (const torch::Tensor& place : found.unbind()) {
    const auto i = place.item<int64_t>();
    prediction.scores.push_back(scores[i].item<double>());
    add_class(prediction, labels[i].item<int64_t>(), info);
  }
  prediction.label = fmt::format("{}", fmt::join(prediction.labels, ", "));
  return prediction;
}

/// \param output  Activated, for one sample, on the CPU; may be undefined.
Prediction decode_output(const torch::Tensor& output, const OutputInfo& info) {
  Prediction prediction{.probabilities = output, .kind = info.kind};
  if (!output.defined()) return prediction;
  prediction.kind = kind_of(output, info);
  if (prediction.kind == TargetKind::number) {
    if (output.dim() <= 1) add_numbers(prediction, info);
    return prediction;
  }
  if (prediction.kind == TargetKind::points) {
    add_points(prediction, info.names);
    return prediction;
  }
  const torch::Tensor batch =
      output.dim() > 1 ? output.unsqueeze(0) : output.reshape({1, -1});
  const TargetKind form = is_overlapping(output, info)
                              ? TargetKind::multi_category
                              : prediction.kind;
  const torch::Tensor found =
      decoded(form, batch, info.threshold)[0].to(torch::kLong);
  if (prediction.kind == TargetKind::mask) {
    prediction.mask = found;
  } else if (prediction.kind == TargetKind::category) {
    prediction.index = found.item<int64_t>();
    add_class(prediction, prediction.index, info);
  } else {
    for (int64_t i = 0; i < found.numel(); ++i) {
      if (found[i].item<int64_t>() != 0) add_class(prediction, i, info);
    }
  }
  prediction.label = fmt::format("{}", fmt::join(prediction.labels, ", "));
  return prediction;
}

std::string text_of(const Prediction& prediction) {
  if (prediction.kind == TargetKind::mask) {
    return fmt::format("mask of {}", fmt::join(prediction.mask.sizes(), " x "));
  }
  if (prediction.kind == TargetKind::points) return prediction.label;
  if (prediction.kind == TargetKind::boxes) {
    std::vector<std::string> words;
    for (size_t i = 0; i < prediction.labels.size(); ++i) {
      words.push_back(fmt::format(
          "{} ({:.3f})",
          prediction.labels[i],
          prediction.scores[i]));
    }
    return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
  }
  if (prediction.kind == TargetKind::number) {
    return prediction.numbers.empty() ? shapes_of({prediction.probabilities})
                                      : prediction.label;
  }
  std::vector<std::string> words;
  for (size_t i = 0; i < prediction.labels.size(); ++i) {
    words.push_back(fmt::format(
        "{} ({:.3f})",
        prediction.labels[i],
        probability_of(prediction.probabilities, prediction.indices[i])));
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::vector<OutputInfo> output_info(const DataBunch& data, const Loss& loss) {
  std::vector<OutputInfo> info = data.outputs;
  if (info.empty()) {
    info = {{.kind = loss_kind(loss, !data.classes.empty())}};
  }
  OutputInfo& first = info[0];
  if (first.names.empty()) first.names = data.classes;
  if (!first.activation && loss) first.activation = loss.activation();
  for (OutputInfo& output : info) {
    if (!output.activation) output.activation = usual_activation(output.kind);
  }
  return info;
}

bool is_mask(const torch::Tensor& output, const OutputInfo& info) {
  return output.defined() && kind_of(output, info) == TargetKind::mask;
}

bool are_detections(
    const Tensors& outputs,
    const std::vector<OutputInfo>& info) {
  return info_at(info, 0).kind == TargetKind::boxes && outputs.size() >= 3 &&
         outputs[0].defined() && outputs[0].dim() == 2 &&
         outputs[0].size(1) == 4 && outputs[1].defined() &&
         outputs[2].defined() && outputs[1].dim() == 1 &&
         outputs[2].sizes() == outputs[1].sizes() &&
         outputs[1].size(0) == outputs[0].size(0);
}

Tensors activate(const Tensors& outputs, const std::vector<OutputInfo>& info) {
  Tensors activated;
  size_t done = 0;
  if (info_at(info, 0).activation == Activation::detections) {
    activated = decode_detections(outputs, info[0].detection);
    done = std::min<size_t>(4, outputs.size());
  }
  for (size_t i = done; i < outputs.size(); ++i) {
    const Activation activation =
        info_at(info, activated.size()).activation.value_or(Activation::none);
    activated.push_back(activate(outputs[i], activation));
  }
  return activated;
}

Prediction decode(const Tensors& outputs, const std::vector<OutputInfo>& info) {
  std::vector<Prediction> predictions;
  const bool has_boxes = are_detections(outputs, info);
  if (has_boxes) {
    predictions.push_back(decode_detector(outputs, info_at(info, 0)));
  }
  for (size_t i = has_boxes ? 3 : 0; i < outputs.size(); ++i) {
    predictions.push_back(decode_output(outputs[i], info_at(info, i)));
  }
  TORCH_CHECK_VALUE(
      !predictions.empty(),
      "[decode] there is no output; expected at least one.");
  Prediction first = predictions[0];
  first.outputs = std::move(predictions);
  return first;
}

Prediction decode(const Predictions& predictions, int64_t index) {
  return decode(sample_outputs(predictions, index), predictions.info);
}

Tensors sample_outputs(const Predictions& predictions, int64_t index) {
  const int64_t size =
      predictions.preds.defined() ? predictions.preds.size(0) : 0;
  if (index < 0 || index >= size) {
    TORCH_CHECK_INDEX(
        false,
        fmt::format(
            "[decode] there is no sample {}; expected 0 to {}.",
            index,
            size - 1));
  }
  Tensors sample;
  for (const torch::Tensor& output : predictions.outputs) {
    const bool is_there = output.defined() && output.size(0) == size;
    sample.push_back(is_there ? output[index] : torch::Tensor());
  }
  return sample;
}

torch::Tensor
decoded(TargetKind kind, const torch::Tensor& preds, double threshold) {
  switch (kind) {
    case TargetKind::number:
    case TargetKind::boxes:
    case TargetKind::points:
      return preds;
    case TargetKind::multi_category:
      return (preds > threshold).to(torch::kFloat);
    default:
      if (preds.dim() > 1 && preds.size(1) > 1) return preds.argmax(1);
      // A single channel is the probability of class 1.
      return (preds.dim() == 1 ? preds : preds.squeeze(1))
          .gt(threshold)
          .to(torch::kLong);
  }
}

std::string class_name(const std::vector<std::string>& classes, int64_t index) {
  return index >= 0 && index < std::ssize(classes)
             ? classes[index]
             : fmt::format("class {}", index);
}

std::string to_string(const Prediction& prediction) {
  if (prediction.outputs.size() <= 1) return text_of(prediction);
  std::vector<std::string> texts;
  texts.reserve(prediction.outputs.size());
  for (const Prediction& output : prediction.outputs) {
    texts.push_back(text_of(output));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace tern
