#include "tern/vision/models/detection/retinanet_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <torch/autograd.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/boxes/box_ops.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr int64_t kBackground = -1, kBetween = -2;
// The number of images processed at once is limited so that a temporary tensor
// has at most this number of elements: 16 MB in kFloat.
constexpr int64_t kMostNumbers = int64_t{1} << 22;

int64_t images_at_once(int64_t numbers_of_one) {
  return std::max<int64_t>(
      1,
      kMostNumbers / std::max<int64_t>(1, numbers_of_one));
}

void check_options(const RetinaNetLossOptions& options) {
  const auto is_weight = [](double value) {
    return std::isfinite(value) && value >= 0;
  };
  TERN_CHECK_VALUE(
      options.alpha >= 0 && options.alpha <= 1 && is_weight(options.gamma) &&
          is_weight(options.box_weight),
      "[retinanet_loss] alpha is {}, gamma {} and box_weight {}; expected an "
      "alpha from 0 to 1 and finite numbers >= 0.",
      options.alpha,
      options.gamma,
      options.box_weight);
  TERN_CHECK_VALUE(
      options.bg_iou >= 0 && options.bg_iou <= options.fg_iou &&
          options.fg_iou <= 1,
      "[retinanet_loss] bg_iou is {} and fg_iou is {}; expected 0 <= bg_iou <= "
      "fg_iou <= 1.",
      options.bg_iou,
      options.fg_iou);
}

// Logits `z` with the sign flipped for the object's class, so that a large z is
// always wrong. The focal loss is then p^gamma * -log(1 - p), with p =
// sigmoid(z), for all classes.
struct Focal {
  torch::Tensor z;      // [B, A, C], in the dtype of the computation
  torch::Tensor index;  // [B, A, 1], class of the object, or 0
  torch::Tensor is_object;

  // \param logits   [B, A, C].
  // \param classes  [B, A], negative for no object.
  Focal(const torch::Tensor& logits, const torch::Tensor& classes)
      : index(classes.clamp_min(0).unsqueeze(2)),
        is_object((classes >= 0).unsqueeze(2)) {
    const auto type =
        logits.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    z = logits.to(type, /*non_blocking=*/false, /*copy=*/true);
    const torch::Tensor own = z.gather(2, index);
    z.scatter_(2, index, torch::where(is_object, -own, own));
  }

  torch::Tensor cross_entropy() const { return torch::log_sigmoid(-z).neg_(); }
};

// Sums the focal loss of each image, [N], over the anchors that contribute.
// Saves only the logits for backward and processes few images at once, because
// the temporary tensors can be larger than all features.
class FocalSum : public torch::autograd::Function<FocalSum> {
 public:
  static torch::Tensor forward(
      torch::autograd::AutogradContext* context,
      const torch::Tensor& logits,
      const torch::Tensor& classes,
      const torch::Tensor& counts,
      double alpha,
      double gamma) {
    context->save_for_backward({logits, classes, counts});
    context->saved_data["alpha"] = alpha;
    context->saved_data["gamma"] = gamma;
    std::vector<torch::Tensor> sums;
    for_parts(logits, [&](int64_t begin, int64_t end) {
      const Focal focal(
          logits.slice(0, begin, end),
          classes.slice(0, begin, end));
      const torch::Tensor loss =
          focal.z.sigmoid().pow_(gamma).mul_(focal.cross_entropy());
      // The object's class has weight alpha; all others have 1 - alpha.
      const torch::Tensor own = loss.gather(2, focal.index).squeeze(2);
      const torch::Tensor all =
          (1 - alpha) * loss.sum(2) +
          ((2 * alpha - 1) * own).where(focal.is_object.squeeze(2), 0);
      sums.push_back(all.where(counts.slice(0, begin, end), 0).sum(1));
    });
    return torch::cat(sums);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& of_sums) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &logits = saved[0], &classes = saved[1],
                        &counts = saved[2];
    const double alpha = context->saved_data["alpha"].toDouble();
    const double gamma = context->saved_data["gamma"].toDouble();
    torch::Tensor gradient = torch::empty_like(logits);
    for_parts(logits, [&](int64_t begin, int64_t end) {
      const Focal focal(
          logits.slice(0, begin, end),
          classes.slice(0, begin, end));
      const torch::Tensor p = focal.z.sigmoid();
      torch::Tensor slope =
          focal.cross_entropy().mul_(1 - p).mul_(gamma).add_(p);
      slope.mul_(p.pow(gamma));
      const torch::Tensor own = slope.gather(2, focal.index);
      slope.mul_(1 - alpha).scatter_(
          2,
          focal.index,
          torch::where(focal.is_object, -alpha * own, (1 - alpha) * own));
      slope.masked_fill_(
          counts.slice(0, begin, end).logical_not().unsqueeze(2),
          0);
      slope.mul_(of_sums[0].slice(0, begin, end).reshape({-1, 1, 1}));
      gradient.slice(0, begin, end).copy_(slope);
    });
    return {gradient, {}, {}, {}, {}};
  }

 private:
  template <class F>
  static void for_parts(const torch::Tensor& logits, const F& f) {
    const int64_t images = logits.size(0);
    const int64_t step = images_at_once(logits.size(1) * logits.size(2));
    for (int64_t begin = 0; begin < images; begin += step) {
      f(begin, std::min(images, begin + step));
    }
  }
};

bool is_shape(const torch::Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.defined() && tensor.sizes() == sizes;
}

void check_tensors(const Tensors& outputs, const Tensors& targets) {
  const auto has_dims = [](const Tensors& all, size_t i, int64_t dims) {
    return i < all.size() && all[i].defined() && all[i].dim() == dims;
  };
  const bool are_outputs = has_dims(outputs, 0, 3) && has_dims(outputs, 1, 3) &&
                           has_dims(outputs, 2, 3);
  TERN_CHECK_VALUE(
      are_outputs && outputs[0].is_floating_point() &&
          is_shape(outputs[1], {outputs[0].size(0), outputs[0].size(1), 4}) &&
          is_shape(outputs[2], outputs[1].sizes()),
      "[retinanet_loss] outputs are {}; expected the outputs of a RetinaNet: "
      "cls_logits [N, A, C], bbox_regression [N, A, 4] and anchors [N, A, 4].",
      shapes_of(outputs));
  TERN_CHECK_VALUE(
      has_dims(targets, 0, 3) && has_dims(targets, 1, 2) &&
          targets[0].is_floating_point() &&
          targets[1].scalar_type() == torch::kLong &&
          is_shape(targets[0], {outputs[0].size(0), targets[1].size(1), 4}) &&
          targets[1].size(0) == outputs[0].size(0),
      "[retinanet_loss] targets are {} for {} images; expected floating-point "
      "boxes [N, K, 4] and labels [N, K] of kLong, -1 for no object.",
      shapes_of(targets),
      outputs[0].size(0));
  const int64_t classes = outputs[0].size(2);
  const torch::Tensor& labels = targets[1];
  if (!labels.is_cpu() || labels.numel() == 0) return;
  const auto [low, high] = labels.aminmax();
  const int64_t smallest = *low.const_data_ptr<int64_t>();
  const int64_t largest = *high.const_data_ptr<int64_t>();
  TERN_CHECK_VALUE(
      smallest >= -1 && largest < classes,
      "[retinanet_loss] a label is {}, but the network has {} classes; "
      "expected labels from 0 to {}, or -1 for no object. Create the network "
      "with the number of classes in the data; the background is not a class.",
      smallest < -1 ? smallest : largest,
      classes,
      classes - 1);
}

// Returns [N, A] without gradients. Requires K > 0.
torch::Tensor match(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& anchors,
    const RetinaNetLossOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor is_object =
      ((labels >= 0)
           .logical_and(boxes.select(2, 2) > boxes.select(2, 0))
           .logical_and(boxes.select(2, 3) > boxes.select(2, 1)))
          .unsqueeze(2);
  Tensors matched;
  const int64_t images = boxes.size(0);
  const int64_t step = images_at_once(boxes.size(1) * anchors.size(1));
  for (int64_t begin = 0; begin < images; begin += step) {
    const int64_t end = std::min(images, begin + step);
    const torch::Tensor is_here = is_object.slice(0, begin, end);
    const torch::Tensor iou =
        box_iou(boxes.slice(0, begin, end), anchors.slice(0, begin, end))
            .masked_fill_(is_here.logical_not(), -1);
    const auto [largest, object] = iou.max(1);
    // An object that overlaps no anchor has no best one.
    const torch::Tensor best = iou.amax(2, /*keepdim=*/true);
    const torch::Tensor is_best =
        (iou == best).logical_and_(is_here).logical_and_(best > 0).any(1);
    matched.push_back(object.masked_fill(largest < options.fg_iou, kBetween)
                          .masked_fill_(largest < options.bg_iou, kBackground)
                          .where(is_best.logical_not(), object));
  }
  return torch::cat(matched);
}

// Adds a padding box if there are no boxes, so that K > 0.
void pad_if_empty(torch::Tensor& boxes, torch::Tensor& labels) {
  if (labels.size(1) > 0) return;
  labels = labels.new_full({labels.size(0), 1}, -1);
  boxes = boxes.new_zeros({boxes.size(0), 1, 4});
}

// Returns [N], the sums over the foreground anchors.
torch::Tensor box_sums(
    const torch::Tensor& regression,
    const torch::Tensor& anchors,
    const torch::Tensor& objects,
    const torch::Tensor& is_foreground,
    BoxLoss kind) {
  // Background anchors have a regression of zero and themselves as the target,
  // so that their loss is 0 even if the network predicts NaN.
  const torch::Tensor mask = is_foreground.unsqueeze(2);
  const torch::Tensor wanted = torch::where(mask, objects, anchors);
  const torch::Tensor codes =
      torch::where(mask, regression, torch::zeros_like(regression));
  if (kind == BoxLoss::l1) {
    return (codes - encode_boxes(wanted, anchors)).abs().sum({1, 2});
  }
  return generalized_box_iou_loss(decode_boxes(codes, anchors), wanted)
      .where(is_foreground, 0)
      .sum(1);
}

// Classification and box losses of each image, [N].
struct ImageLosses {
  torch::Tensor classes, boxes;
};

ImageLosses losses_of_images(
    const Tensors& outputs,
    const Tensors& targets,
    const RetinaNetLossOptions& options) {
  check_tensors(outputs, targets);
  const torch::Tensor& logits = outputs[0];
  const auto type =
      logits.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  if (logits.size(0) == 0) {
    return {logits.sum({1, 2}).to(type), outputs[1].sum({1, 2}).to(type)};
  }
  torch::Tensor boxes = targets[0], labels = targets[1];
  pad_if_empty(boxes, labels);
  const torch::Tensor anchors = outputs[2].to(type);
  boxes = boxes.to(type);

  const torch::Tensor matched = match(boxes, labels, anchors, options);
  const torch::Tensor is_foreground = matched >= 0;
  const torch::Tensor index = matched.clamp_min(0);
  const torch::Tensor classes = labels.gather(1, index)
                                    .clamp_max(logits.size(2) - 1)
                                    .masked_fill(matched < 0, -1);
  const torch::Tensor objects =
      boxes.gather(1, index.unsqueeze(2).expand({-1, -1, 4}));
  const torch::Tensor foreground = is_foreground.sum(1).clamp_min(1).to(type);

  const torch::Tensor of_classes = FocalSum::apply(
      logits,
      classes,
      matched != kBetween,
      options.alpha,
      options.gamma);
  const torch::Tensor of_boxes = box_sums(
      outputs[1].to(type),
      anchors,
      objects,
      is_foreground,
      options.box_loss);
  const torch::Tensor is_wrong = (labels >= logits.size(2)).any(1);
  return {
      (of_classes / foreground)
          .masked_fill(is_wrong, std::numeric_limits<double>::quiet_NaN()),
      of_boxes / foreground};
}

}  // namespace

torch::Tensor match_anchors(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& anchors,
    const RetinaNetLossOptions& options) {
  check_options(options);
  TERN_CHECK_VALUE(
      boxes.defined() && boxes.dim() == 3 && anchors.defined() &&
          anchors.dim() == 3 && anchors.size(0) == boxes.size(0) &&
          anchors.size(1) > 0 && is_shape(labels, boxes.sizes().slice(0, 2)) &&
          labels.scalar_type() == torch::kLong,
      "[match_anchors] boxes, labels and anchors are {}; expected [N, K, 4], "
      "[N, K] of kLong and [N, A, 4].",
      shapes_of({boxes, labels, anchors}));
  torch::Tensor all_boxes = boxes, all_labels = labels;
  pad_if_empty(all_boxes, all_labels);
  return match(all_boxes, all_labels, anchors, options);
}

Tensors retinanet_losses(
    const Tensors& outputs,
    const Tensors& targets,
    const RetinaNetLossOptions& options) {
  check_options(options);
  const auto [classes, boxes] = losses_of_images(outputs, targets, options);
  const auto images =
      static_cast<double>(std::max<int64_t>(1, classes.size(0)));
  return {classes.sum() / images, boxes.sum() / images};
}

Loss retinanet_loss(const RetinaNetLossOptions& options) {
  check_options(options);
  const auto losses =
      [options](const Tensors& outputs, const Tensors& targets) {
        const auto [classes, boxes] =
            losses_of_images(outputs, targets, options);
        return classes + options.box_weight * boxes;
      };
  // Every image has weight 1; the loss of an empty batch is 0.
  const auto images = [](const Tensors&, const Tensors& targets) {
    return targets.at(1).new_ones({targets.at(1).size(0)}, torch::kDouble);
  };
  return Loss::mean_of(losses, images)
      .target_is_position()
      .activation(Activation::detections);
}

}  // namespace tern
