#include "tern/vision/interpret/visible_batch.h"

#include <utility>

#include <fmt/ranges.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

bool is_bytes(const Batch& batch) {
  return batch.inputs.at(0).scalar_type() == torch::kByte;
}

}  // namespace

VisibleBatch visible_batch(const DataBunch& data, Batch batch, bool augments) {
  if (is_bytes(batch) && augments) batch = batch.to(data.device);
  for (const BatchTransform& transform : data.batch_transforms) {
    if (!is_bytes(batch) || !augments) break;
    BatchTransformContext context{
        .training = true,
        .seed = data.train->options().seed};
    Batch usual = batch, next = batch;
    transform(usual, context);
    context.keeps_bytes = true;
    transform(next, context);
    if (!is_bytes(next)) break;
    batch = std::move(next);
    if (!is_bytes(usual)) break;  // later transforms expect floats
  }
  torch::Tensor images = batch.inputs[0].detach().cpu();
  const int64_t channels =
      images.dim() == 4 ? images.size(is_bytes(batch) ? 3 : 1) : int64_t{0};
  TERN_CHECK_VALUE(
      channels == 1 || channels == 3,
      "[show] the inputs are {}; expected images, [N, H, W, 1 or 3] kByte "
      "or [N, 1 or 3, H, W] floating-point.",
      shapes_of({images}));
  if (!is_bytes(batch)) {
    images = images.to(torch::kFloat);
    const double low = images.min().item<double>();
    const double high = images.max().item<double>();
    if (low < 0 || high > 1) {
      images = (images - low) / (high > low ? high - low : 1);
    }
    images = images.mul(255).round().to(torch::kByte).permute({0, 2, 3, 1});
  }
  // Copied, because the data loader reuses the batch's memory.
  VisibleBatch visible{images.clone(at::MemoryFormat::Contiguous), {}, {}};
  for (const torch::Tensor& target : batch.targets) {
    visible.all_targets.push_back(target.cpu().clone());
  }
  if (!batch.targets.empty()) visible.targets = visible.all_targets[0];
  return visible;
}

TargetKind target_kind(const DataBunch& data, const torch::Tensor& targets) {
  const int64_t classes = std::ssize(data.classes);
  TargetKind kind = TargetKind::number;
  if (!data.outputs.empty()) {
    kind = data.outputs[0].kind;
  } else if (!targets.is_floating_point()) {
    kind = TargetKind::category;
  } else if (targets.dim() == 2 && classes > 0 && targets.size(1) == classes) {
    kind = TargetKind::multi_category;
  }
  return kind == TargetKind::category && targets.dim() >= 3 ? TargetKind::mask
                                                            : kind;
}

void refuse_boxes_and_points(const DataBunch& data, const char* who) {
  if (data.outputs.empty()) return;
  const TargetKind kind = data.outputs[0].kind;
  TERN_CHECK_VALUE(
      kind != TargetKind::boxes,
      "[{}] the targets are boxes (data.outputs[0].kind); expected classes. "
      "Use DetectionInterpretation, or show_results.",
      who);
  TERN_CHECK_VALUE(
      kind != TargetKind::points,
      "[{}] the targets are points (data.outputs[0].kind); expected classes. "
      "Use show_results to draw images, and get_preds with losses for the "
      "worst images.",
      who);
}

Rgb prediction_color(TargetKind kind, bool is_right) {
  if (kind == TargetKind::number) return kTextColor;
  return is_right ? kRightColor : kWrongColor;
}

std::string target_text(
    TargetKind kind,
    const torch::Tensor& target,
    const std::vector<std::string>& classes) {
  if (kind == TargetKind::category) {
    return class_name(classes, target.item<int64_t>());
  }
  const torch::Tensor values = target.to(torch::kDouble).cpu().reshape({-1});
  std::vector<std::string> words;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double value = values[i].item<double>();
    if (kind == TargetKind::number) {
      words.push_back(fmt::format("{:.4g}", value));
    } else if (value > 0.5) {
      words.push_back(class_name(classes, i));
    }
  }
  return words.empty() ? "(none)" : fmt::format("{}", fmt::join(words, ", "));
}

std::vector<MarkedBox> box_marks(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& scores,
    const std::vector<std::string>& names) {
  const torch::Tensor corners = boxes.to(torch::kDouble).contiguous();
  const auto* corner = corners.const_data_ptr<double>();
  std::vector<MarkedBox> marks;
  for (int64_t i = 0; i < labels.size(0); ++i, corner += 4) {
    const auto label = labels[i].item<int64_t>();
    if (label < 0) continue;
    std::string name = class_name(names, label);
    if (scores.defined()) {
      name += fmt::format(" {:.2f}", scores[i].item<double>());
    }
    marks.push_back(
        {corner[0],
         corner[1],
         corner[2],
         corner[3],
         std::move(name),
         class_color(label)});
  }
  return marks;
}

std::vector<MarkedPoint> point_marks(
    const torch::Tensor& points,
    const torch::Tensor& visible) {
  std::vector<MarkedPoint> marks;
  for (int64_t i = 0; i < points.size(0); ++i) {
    if (visible.defined() && !visible[i].item<bool>()) continue;
    marks.push_back(
        {points[i][0].item<double>(),
         points[i][1].item<double>(),
         class_color(i)});
  }
  return marks;
}

std::vector<CaptionLine> point_legend(const std::vector<std::string>& names) {
  std::vector<CaptionLine> legend;
  legend.reserve(names.size());
  for (const std::string& name : names) {
    legend.push_back({name, class_color(std::ssize(legend))});
  }
  return legend;
}

std::vector<Picture> mask_pictures(
    const torch::Tensor& image,
    const torch::Tensor& target,
    const torch::Tensor& pred,
    int64_t classes) {
  std::vector<Picture> pictures = {
      {image, {{"image"}}},
      {with_mask(image, target, classes), {{"target"}}}};
  if (!pred.defined()) return pictures;
  const torch::Tensor known = (target >= 0).logical_and(target < classes);
  const double share = (pred == target)
                           .masked_select(known)
                           .to(torch::kDouble)
                           .mean()
                           .item<double>();  // NaN if no pixel is known
  pictures.push_back(
      {with_mask(image, pred, classes),
       {{std::isnan(share)
             ? std::string("prediction")
             : fmt::format("prediction, {:.0f}% right", 100 * share)}}});
  return pictures;
}

std::vector<CaptionLine> mask_legend(
    const Tensors& masks,
    const std::vector<std::string>& names,
    int64_t classes) {
  torch::Tensor occurs = torch::zeros({classes}, torch::kBool);
  for (const torch::Tensor& mask : masks) {
    const torch::Tensor known = (mask >= 0).logical_and(mask < classes);
    occurs.index_fill_(0, mask.masked_select(known).to(torch::kLong), true);
  }
  const torch::Tensor colors = mask_colors(classes);
  std::vector<CaptionLine> legend;
  for (int64_t i = 0; i < classes; ++i) {
    if (!occurs[i].item<bool>()) continue;
    const auto* color = colors.const_data_ptr<uint8_t>() + 3 * i;
    legend.push_back({class_name(names, i), {color[0], color[1], color[2]}});
  }
  return legend;
}

}  // namespace tern
