#include "tern/learner/export/onnx/add_detections.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tern/learner/export/onnx/term.h"

namespace tern::onnx {

namespace {

struct Candidates {
  Term boxes, scores, labels;  // [N, K, 4], [N, K], [N, K]
};

// Returns the rows of x [N, A, 4] at index [N, K].
Term rows_of(const Term& x, const Term& index) {
  Value* const shape = x.graph().integers({1, 1, 4});
  const Term each = term::unsqueeze(index, 2).op_with("Expand", {shape});
  return x.op_with("GatherElements", {each.value()}, {{"axis", 1}});
}

// Returns the largest numbers of each row and their indices. Among equal
// numbers, prefers the first.
std::pair<Term, Term> largest(const Term& x, Value* k) {
  OnnxGraph& graph = x.graph();
  const Values both =
      graph.op_with_outputs(2, "TopK", {x.value(), k}, {{"axis", 1}});
  return {Term(graph, both[0], x.type()), Term(graph, both[1], torch::kLong)};
}

std::vector<Term> split_levels(const Term& x, const Integers& counts) {
  OnnxGraph& graph = x.graph();
  const Values parts = graph.op_with_outputs(
      counts.size(),
      "Split",
      {x.value(), graph.integers(counts)},
      {{"axis", 1}});
  std::vector<Term> terms;
  for (Value* const part : parts) terms.emplace_back(graph, part, x.type());
  return terms;
}

Term join_levels(const std::vector<Term>& parts) {
  Values others;
  for (size_t i = 1; i < parts.size(); ++i) others.push_back(parts[i].value());
  return parts[0].op_with("Concat", others, {{"axis", 1}});
}

// Candidates of a level with `count` anchors.
Candidates candidates_of(
    const Term& boxes,
    const Term& logits,
    int64_t count,
    const RawDetections& raw,
    int64_t topk) {
  OnnxGraph& graph = boxes.graph();
  const Term flat = logits.op_with("Flatten", {}, {{"axis", 1}});
  Value* k = nullptr;
  if (raw.has_any_size) {
    Value* const all = graph.sizes_at(flat.value(), {1});
    k = graph.op("Min", {graph.integers({topk}), all});
  } else {
    k = graph.integers({std::min(topk, count * raw.classes)});
  }
  const auto [top, index] = largest(flat, k);
  const auto classes = static_cast<double>(raw.classes);
  const Term anchor = index / classes;
  return {rows_of(boxes, anchor), term::sigmoid(top), index - anchor * classes};
}

Candidates
all_candidates(OnnxGraph& graph, const RawDetections& raw, int64_t topk) {
  const Term given(graph, raw.logits, torch::kFloat);
  // A NaN is not a detection.
  const Term is_nan(graph, graph.op("IsNaN", {given.value()}), torch::kBool);
  const Term none = given.number(-std::numeric_limits<double>::infinity());
  const Term logits = term::where(is_nan, none, given);
  Integers counts = raw.counts;
  std::erase(counts, 0);
  const std::vector<Term> boxes =
      split_levels(Term(graph, raw.boxes, torch::kFloat), counts);
  const std::vector<Term> classes = split_levels(logits, counts);
  std::vector<Term> all_boxes, scores, labels;
  for (size_t i = 0; i < counts.size(); ++i) {
    const Candidates level =
        candidates_of(boxes[i], classes[i], counts[i], raw, topk);
    all_boxes.push_back(level.boxes);
    scores.push_back(level.scores);
    labels.push_back(level.labels);
  }
  return {join_levels(all_boxes), join_levels(scores), join_levels(labels)};
}

// Returns the largest fp32 number that is not above the threshold. An IoU
// exceeds this number if and only if it exceeds the threshold, as in
// `nms_mask`.
float iou_threshold_of(double threshold) {
  const auto near = static_cast<float>(threshold);
  return near > threshold ? std::nextafter(near, -1.F) : near;
}

// Returns the scores of the candidates that are kept, and 0 for the others: [N,
// K].
Term kept_scores(
    const Candidates& all,
    int64_t classes,
    const DetectionOptions& options) {
  OnnxGraph& graph = all.scores.graph();
  const auto constant = [&](const auto& number) {
    return graph.constant(torch::tensor({number}));
  };
  // ONNX needs a score of each box for each class: [N, C, K].
  const Term every(
      graph,
      graph.constant(torch::arange(classes).view({1, -1, 1})),
      torch::kLong);
  const Term by_class = term::where(
      term::unsqueeze(all.labels, 1) == every,
      term::unsqueeze(all.scores, 1),
      all.scores.number(0));
  // [S, 3]: image, class and candidate. Each class is limited to the number of
  // detections for all classes.
  const Term selected(
      graph,
      graph.op(
          "NonMaxSuppression",
          {all.boxes.value(),
           by_class.value(),
           constant(options.detections_per_img),
           constant(iou_threshold_of(options.nms_thresh)),
           constant(static_cast<float>(options.score_thresh))}),
      torch::kLong);
  Value* const places =
      term::gather(selected, torch::tensor({0, 2}), 1).value();
  const Term scores = all.scores.op_with("GatherND", {places});
  Value* const shape = graph.op("Shape", {all.scores.value()});
  const Term none(graph, graph.op("ConstantOfShape", {shape}), torch::kFloat);
  return none.op_with("ScatterND", {places, scores.value()});
}

}  // namespace

void add_detections(
    OnnxGraph& graph,
    const RawDetections& raw,
    const DetectionOptions& options,
    const std::vector<std::string>& names) {
  const int64_t most = options.detections_per_img;
  const Candidates all = all_candidates(graph, raw, options.topk_candidates);
  const Term kept = kept_scores(all, raw.classes, options);
  // Ensures that there are at least `most` scores.
  const Term padded = kept.op_with("Pad", {graph.integers({0, 0, 0, most})});
  const auto [scores, index] = largest(padded, graph.integers({most}));
  const Term is_none = scores <= 0;
  const Term first = term::where(is_none, index.number(0), index);
  const Term boxes = rows_of(all.boxes, first);
  const Term labels =
      all.labels.op_with("GatherElements", {first.value()}, {{"axis", 1}});
  const Term no_box = term::unsqueeze(is_none, 2);
  const auto add = [&](const Term& x, const Integers& sizes, size_t i) {
    graph.add_output(x.value(), x.type(), sizes, names.at(i));
  };
  add(term::where(no_box, boxes.number(0), boxes), {raw.images, most, 4}, 0);
  add(scores, {raw.images, most}, 1);
  add(term::where(is_none, labels.number(-1), labels), {raw.images, most}, 2);
}

}  // namespace tern::onnx
