#include "tern/learner/detections.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/ranges.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/boxes/box_ops.h"
#include "tern/kernels/check.h"
#include "tern/learner/detection_parts.h"

namespace tern {

void check_detection_options(
    const char* where,
    const DetectionOptions& options) {
  const auto is_share = [](double x) { return x >= 0 && x <= 1; };
  TERN_CHECK_VALUE(
      is_share(options.score_thresh) && is_share(options.nms_thresh) &&
          options.topk_candidates > 0 && options.detections_per_img > 0 &&
          options.levels > 0,
      "[{}] score_thresh is {}, nms_thresh {}, topk_candidates {}, "
      "detections_per_img {} and levels {}; expected thresholds from 0 to 1 "
      "and positive numbers.",
      where,
      options.score_thresh,
      options.nms_thresh,
      options.topk_candidates,
      options.detections_per_img,
      options.levels);
}

void check_detector_outputs(const char* where, const Tensors& outputs) {
  const auto is = [&](size_t i, at::IntArrayRef sizes) {
    return outputs[i].defined() && outputs[i].sizes() == sizes;
  };
  const bool has_all = outputs.size() >= 4 && outputs[0].defined() &&
                       outputs[0].dim() == 3 && outputs[0].size(2) > 0 &&
                       outputs[0].is_floating_point();
  const int64_t images = has_all ? outputs[0].size(0) : 0;
  const int64_t anchors = has_all ? outputs[0].size(1) : 0;
  TERN_CHECK_VALUE(
      has_all && is(1, {images, anchors, 4}) && is(2, {images, anchors, 4}) &&
          is(3, {images, 2}),
      "[{}] outputs are {}; expected the outputs of a RetinaNet: cls_logits "
      "[N, A, C], bbox_regression [N, A, 4], anchors [N, A, 4] and image_sizes "
      "[N, 2].",
      where,
      shapes_of(outputs));
}

namespace {

// Finds the number of anchors of each level. All levels begin with the same
// number of anchors at position (0, 0).
std::vector<int64_t>
find_levels(const char* where, const torch::Tensor& anchors, int64_t levels) {
  const torch::Tensor is_first =
      (anchors.slice(1, 0, 2) + anchors.slice(1, 2, 4) == 0).all(1);
  const torch::Tensor at = is_first.nonzero().flatten().cpu();
  const int64_t per_location = at.numel() / levels;
  const auto* places = at.const_data_ptr<int64_t>();
  TERN_CHECK_VALUE(
      per_location > 0 && at.numel() % levels == 0 && places[0] == 0,
      "[{}] {} of {} anchors are centered at (0, 0), the first at index {}; "
      "expected the same number for each of {} levels, starting with anchor 0. "
      "Set .anchors_per_level, or .levels.",
      where,
      at.numel(),
      anchors.size(0),
      at.numel() > 0 ? places[0] : -1,
      levels);
  std::vector<int64_t> counts;
  for (int64_t level = 0; level < levels; ++level) {
    const int64_t end = level + 1 < levels ? places[(level + 1) * per_location]
                                           : anchors.size(0);
    counts.push_back(end - places[level * per_location]);
  }
  return counts;
}

struct Candidates {
  torch::Tensor boxes, scores, labels;  // [N, K, 4], [N, K], [N, K]
};

torch::Tensor rows_of(const torch::Tensor& x, const torch::Tensor& index) {
  return x.gather(1, index.unsqueeze(2).expand({-1, -1, x.size(2)}));
}

// Returns the `k` largest numbers of each row, in descending order.
std::tuple<torch::Tensor, torch::Tensor>
largest(const torch::Tensor& x, int64_t k, bool keeps_order) {
  k = std::min(k, x.size(1));
  if (!keeps_order) return x.topk(k);
  const auto [values, index] = x.sort(
      /*stable=*/true,
      /*dim=*/1,
      /*descending=*/true);
  return {values.slice(1, 0, k), index.slice(1, 0, k)};
}

// Returns the candidates of a level, whose anchors are `begin` to `end`.
Candidates candidates_of(
    const torch::Tensor& all_logits,
    const BoxesOf& boxes_of,
    int64_t begin,
    int64_t end,
    int64_t topk,
    bool keeps_order) {
  const int64_t classes = all_logits.size(2);
  // A NaN is not a detection.
  const torch::Tensor logits =
      all_logits.slice(1, begin, end)
          .flatten(1)
          .nan_to_num(-std::numeric_limits<double>::infinity());
  const auto [top, index] = largest(logits, topk, keeps_order);
  return {
      boxes_of(index.floor_divide(classes), begin),
      top.to(torch::kFloat).sigmoid(),
      index.remainder(classes)};
}

}  // namespace

std::vector<int64_t> anchors_per_level(
    const char* where,
    const torch::Tensor& anchors,
    const DetectionOptions& options) {
  const int64_t images = anchors.size(0), all = anchors.size(1);
  std::vector<int64_t> counts = options.anchors_per_level;
  if (images == 0 || all == 0) return {};
  if (counts.empty()) {
    counts = find_levels(where, anchors[0], options.levels);
  }
  TERN_CHECK_VALUE(
      std::ranges::all_of(
          counts,
          [&](int64_t count) { return count >= 0 && count <= all; }) &&
          std::accumulate(counts.begin(), counts.end(), int64_t{0}) == all,
      "[{}] anchors_per_level is {{{}}} and there are {} anchors; expected "
      "numbers >= 0 whose sum is the number of anchors.",
      where,
      fmt::join(counts, ", "),
      all);
  return counts;
}

torch::Tensor decoded_boxes(const Tensors& outputs) {
  const torch::Tensor boxes =
      decode_boxes(outputs[1].to(torch::kFloat), outputs[2].to(torch::kFloat));
  return clip_boxes_to_image(boxes, outputs[3]);
}

Tensors decode_detections(
    const Tensors& outputs,
    const DetectionOptions& options) {
  check_detection_options("decode_detections", options);
  check_detector_outputs("decode_detections", outputs);
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> counts =
      anchors_per_level("decode_detections", outputs[2], options);
  const auto boxes_of = [&](const torch::Tensor& anchor, int64_t begin) {
    const auto of = [&](size_t i) {
      return rows_of(outputs[i].slice(1, begin), anchor);
    };
    return decoded_boxes({{}, of(1), of(2), outputs[3]});
  };
  return select_detections(outputs[0], boxes_of, counts, options);
}

Tensors select_detections(
    const torch::Tensor& logits,
    const BoxesOf& boxes_of,
    const std::vector<int64_t>& counts,
    const DetectionOptions& options,
    bool keeps_order) {
  const int64_t images = logits.size(0), most = options.detections_per_img;
  Tensors boxes, scores, labels;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    Candidates level = candidates_of(
        logits,
        boxes_of,
        begin,
        begin + count,
        options.topk_candidates,
        keeps_order);
    boxes.push_back(std::move(level.boxes));
    scores.push_back(std::move(level.scores));
    labels.push_back(std::move(level.labels));
    begin += count;
  }
  // Padding, so that there are always at least `most` candidates.
  const auto in_type = [&](torch::ScalarType type) {
    return torch::dtype(type).device(logits.device());
  };
  boxes.push_back(torch::zeros({images, most, 4}, in_type(torch::kFloat)));
  scores.push_back(torch::zeros({images, most}, in_type(torch::kFloat)));
  labels.push_back(torch::full({images, most}, -1, in_type(torch::kLong)));

  const auto [score, order] = torch::cat(scores, 1).sort(
      /*stable=*/true,
      /*dim=*/1,
      /*descending=*/true);
  const torch::Tensor box = rows_of(torch::cat(boxes, 1), order);
  const torch::Tensor label =
      torch::cat(labels, 1).gather(1, order).masked_fill(
          score <= options.score_thresh,
          -1);
  const torch::Tensor keep = nms_mask(box, label, options.nms_thresh);
  // Moves the kept candidates to the front, in their order.
  const torch::Tensor first = std::get<1>(keep.logical_not()
                                              .to(torch::kByte)
                                              .sort(
                                                  /*stable=*/true,
                                                  /*dim=*/1,
                                                  /*descending=*/false))
                                  .slice(1, 0, most);
  const torch::Tensor is_none = keep.gather(1, first).logical_not();
  return {
      rows_of(box, first).masked_fill(is_none.unsqueeze(2), 0),
      score.gather(1, first).masked_fill(is_none, 0),
      label.gather(1, first).masked_fill(is_none, -1)};
}

}  // namespace tern
