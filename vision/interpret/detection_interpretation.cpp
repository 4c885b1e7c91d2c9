#include "tern/vision/interpret/detection_interpretation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/boxes/box_ops.h"
#include "tern/kernels/check.h"
#include "tern/vision/interpret/matrix_picture.h"
#include "tern/vision/interpret/visible_batch.h"

namespace tern {

namespace {

constexpr Rgb kFound = {0, 136, 86}, kMissed = {200, 20, 40},
              kFalse = {243, 132, 0}, kConfused = {135, 60, 170},
              kCrowd = {110, 110, 110};

void check_detection_options(const DetectionInterpretationOptions& options) {
  TERN_CHECK_VALUE(
      options.iou > 0 && options.iou <= 1 &&
          !std::isnan(options.score.value_or(0)),
      "[DetectionInterpretation::from] iou is {} and score {}; expected 0 < "
      "iou <= 1 and a score that is not NaN.",
      options.iou,
      options.score.value_or(0));
}

/// True for boxes [N, K, 4] with one label each.
bool are_labeled_boxes(
    const torch::Tensor& boxes,
    const torch::Tensor& labels) {
  return boxes.defined() && boxes.dim() == 3 && boxes.size(2) == 4 &&
         boxes.is_floating_point() && labels.defined() &&
         labels.sizes() == boxes.sizes().slice(0, 2);
}

void check_outputs(const Tensors& outputs) {
  TERN_CHECK_VALUE(
      outputs.size() >= 3 && are_labeled_boxes(outputs[0], outputs[2]) &&
          outputs[1].defined() && outputs[1].sizes() == outputs[2].sizes(),
      "[DetectionInterpretation::from] the outputs are {}; expected "
      "detections, boxes [N, D, 4] Float, scores [N, D] Float and labels [N, "
      "D] Long, -1 for none. For a RetinaNet set data.outputs[0].activation to "
      "Activation::detections, as detection_learner does; other models must "
      "return their detections.",
      shapes_of(outputs));
  TORCH_CHECK_VALUE(
      !outputs[1].isnan().any().item<bool>(),
      "[DetectionInterpretation::from] a score is NaN; expected numbers. Find "
      "the batch that caused it with TerminateOnNaN.");
}

void check_box_targets(const Tensors& targets) {
  const size_t count = targets.size();
  TERN_CHECK_VALUE(
      count >= 2 && are_labeled_boxes(targets[0], targets[1]) &&
          (count < 5 || are_labeled_boxes(targets[3], targets[4])),
      "[DetectionInterpretation::from] the targets are {}; expected boxes [N, "
      "K, 4] Float and labels [N, K] Long, then areas or nothing, then crowd "
      "boxes [N, C, 4] Float and their labels [N, C] Long or nothing. Give the "
      "dataset targets such as BoxTargets creates.",
      shapes_of(targets));
}

/// Returns all labels of outputs and targets in a single tensor.
torch::Tensor labels_in(const Tensors& outputs, const Tensors& targets) {
  Tensors all = {outputs[2].flatten(), targets[1].flatten()};
  if (targets.size() >= 5) all.push_back(targets[4].flatten());
  for (torch::Tensor& labels : all) labels = labels.to(torch::kLong);
  return torch::cat(all);
}

/// Returns the IoU of each of D boxes with each of K boxes, [D, K]; 0 if either
/// has no area.
torch::Tensor overlaps(
    const torch::Tensor& boxes,
    const torch::Tensor& others) {
  return box_iou(boxes.to(torch::kDouble), others.to(torch::kDouble))
      .nan_to_num(0);
}

/// Returns the fraction of each box that is within each region, [D, C].
torch::Tensor shares_within(
    const torch::Tensor& boxes,
    const torch::Tensor& regions) {
  const torch::Tensor box = boxes.to(torch::kDouble).unsqueeze(1);
  const torch::Tensor region = regions.to(torch::kDouble).unsqueeze(0);
  const torch::Tensor least =
      torch::maximum(box.slice(2, 0, 2), region.slice(2, 0, 2));
  const torch::Tensor most =
      torch::minimum(box.slice(2, 2, 4), region.slice(2, 2, 4));
  const torch::Tensor common = (most - least).clamp_min(0).prod(2);
  return (common / box_area(boxes.to(torch::kDouble)).unsqueeze(1))
      .nan_to_num(0, 0, 0);
}

template <class T>
std::vector<T> row_values(const torch::Tensor& row) {
  const torch::Tensor values =
      row.to(torch::CppTypeToScalarType<T>::value).contiguous();
  const T* const first = values.template const_data_ptr<T>();
  return {first, first + values.numel()};
}

MarkedBox marked(const torch::Tensor& box, std::string name, Rgb color) {
  const std::vector<double> edges = row_values<double>(box);
  return {edges[0], edges[1], edges[2], edges[3], std::move(name), color};
}

std::string counts_text(const DetectionCounts& counts) {
  return fmt::format(
      "{} found, {} missed, {} false, {} confused",
      counts.found,
      counts.missed,
      counts.false_positives,
      counts.confused);
}

void add_to(DetectionCounts& sum, const DetectionCounts& counts) {
  sum.objects += counts.objects;
  sum.found += counts.found;
  sum.confused += counts.confused;
  sum.missed += counts.missed;
  sum.false_positives += counts.false_positives;
}

}  // namespace

DetectionInterpretation::DetectionInterpretation(
    Learner& learn,
    Split split,
    const DetectionInterpretationOptions& options)
    : data_(learn.data()), iou_(options.iou) {
  check_detection_options(options);
  TORCH_CHECK_VALUE(
      !data_.outputs.empty() && data_.outputs[0].kind == TargetKind::boxes,
      "[DetectionInterpretation::from] the data has no boxes, according to "
      "data.outputs[0].kind; expected TargetKind::boxes. Use Interpretation or "
      "ClassificationInterpretation, or describe the boxes of your own data in "
      "data.outputs.");
  const DataLoader loader = data_.loader(split).in_order();
  dataset_ = loader.dataset_ptr();
  predictions_ = learn.get_preds(loader);
  TERN_CHECK_VALUE(
      predictions_.preds.defined() && predictions_.preds.size(0) > 0,
      "[DetectionInterpretation::from] the {} data has no sample; expected at "
      "least one.",
      tern::to_string(split));
  check_outputs(predictions_.outputs);
  check_box_targets(predictions_.all_targets);
  score_ = options.score.value_or(predictions_.info[0].threshold);

  const torch::Tensor labels =
      labels_in(predictions_.outputs, predictions_.all_targets);
  const int64_t highest =
      labels.numel() > 0 ? labels.max().item<int64_t>() : -1;
  const int64_t named = std::ssize(predictions_.info[0].names);
  constexpr int64_t kMaxClasses = 10'000;
  TERN_CHECK_VALUE(
      highest < (named > 0 ? named : kMaxClasses),
      "[DetectionInterpretation::from] a label is {}, and there are {} "
      "classes; expected -1 for none, or a class from 0. Name all classes of "
      "the model in data.classes.",
      highest,
      named);
  classes_ = class_names(
      predictions_.info[0].names,
      named > 0 ? named : std::max<int64_t>(highest + 1, 1));
  const int64_t count = std::ssize(classes_);
  counts_.resize(classes_.size());
  matrix_ = torch::zeros({count + 1, count + 1}, torch::kLong);
  for (int64_t row = 0; row < predictions_.preds.size(0); ++row) {
    images_.push_back(match(row));
    count_image(row);
  }
}

DetectionInterpretation::ImageMatches DetectionInterpretation::match(
    int64_t row) const {
  const Tensors& targets = predictions_.all_targets;
  const auto scores = row_values<double>(predictions_.outputs[1][row]);
  const auto labels = row_values<int64_t>(predictions_.outputs[2][row]);
  const auto actual = row_values<int64_t>(targets[1][row]);
  const torch::Tensor boxes = predictions_.outputs[0][row];
  const torch::Tensor ious = overlaps(boxes, targets[0][row]).contiguous();
  const auto* iou = ious.const_data_ptr<double>();
  const size_t objects = actual.size();

  ImageMatches result;
  result.object_of.assign(labels.size(), kIgnored);
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return scores[a] > scores[b];
  });
  std::vector<bool> taken(objects);
  for (const size_t i : order) {
    if (labels[i] < 0 || scores[i] < score_) continue;
    int64_t& best = result.object_of[i];
    best = kNone;
    std::pair<bool, double> best_fit = {false, 0};
    for (size_t k = 0; k < objects; ++k) {
      const double overlap = iou[i * objects + k];
      if (actual[k] < 0 || taken[k] || overlap < iou_) continue;
      const std::pair<bool, double> fit = {actual[k] == labels[i], overlap};
      if (fit <= best_fit) continue;
      best_fit = fit;
      best = static_cast<int64_t>(k);
    }
    if (best >= 0) taken[best] = true;
  }
  if (targets.size() < 5) return result;
  const auto crowds = row_values<int64_t>(targets[4][row]);
  const torch::Tensor shares =
      shares_within(boxes, targets[3][row]).contiguous();
  const auto* share = shares.const_data_ptr<double>();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (result.object_of[i] != kNone) continue;
    for (size_t c = 0; c < crowds.size(); ++c) {
      const bool is_within =
          crowds[c] == labels[i] && share[i * crowds.size() + c] >= iou_;
      if (is_within) result.object_of[i] = kIgnored;
    }
  }
  return result;
}

void DetectionInterpretation::count_image(int64_t row) {
  ImageMatches& image = images_[row];
  DetectionCounts& of_image = image.counts;
  const auto labels = row_values<int64_t>(predictions_.outputs[2][row]);
  const auto actual = row_values<int64_t>(predictions_.all_targets[1][row]);
  auto cells = matrix_.accessor<int64_t, 2>();
  const int64_t background = std::ssize(classes_);
  std::vector<bool> is_missed(actual.size(), true);
  for (size_t i = 0; i < labels.size(); ++i) {
    const int64_t object = image.object_of[i];
    if (object == kIgnored) continue;
    if (object == kNone) {
      ++of_image.false_positives;
      ++counts_[labels[i]].false_positives;
      ++cells[background][labels[i]];
      continue;
    }
    is_missed[object] = false;
    const int64_t label = actual[object];
    const bool is_right = label == labels[i];
    ++(is_right ? of_image.found : of_image.confused);
    ++(is_right ? counts_[label].found : counts_[label].confused);
    ++cells[label][labels[i]];
  }
  for (size_t k = 0; k < actual.size(); ++k) {
    if (actual[k] < 0) continue;
    ++of_image.objects;
    ++counts_[actual[k]].objects;
    if (!is_missed[k]) continue;
    ++of_image.missed;
    ++counts_[actual[k]].missed;
    ++cells[actual[k]][background];
  }
}

DetectionCounts DetectionInterpretation::total() const {
  DetectionCounts sum;
  for (const DetectionCounts& counts : counts_) add_to(sum, counts);
  return sum;
}

std::vector<Confusion> DetectionInterpretation::most_confused(
    int64_t min_count) const {
  const auto cells = matrix_.accessor<int64_t, 2>();
  const int64_t count = std::ssize(classes_);
  std::vector<Confusion> pairs;
  for (int64_t actual = 0; actual < count; ++actual) {
    for (int64_t predicted = 0; predicted < count; ++predicted) {
      const int64_t objects = cells[actual][predicted];
      if (actual == predicted || objects == 0 || objects < min_count) continue;
      pairs.push_back({classes_[actual], classes_[predicted], objects});
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), &Confusion::count);
  return pairs;
}

std::vector<int64_t> DetectionInterpretation::worst_rows(int64_t k) const {
  TERN_CHECK_VALUE(
      k >= 0,
      "[DetectionInterpretation::worst_images] k is {}; expected 0 for all, or "
      "a number of images.",
      k);
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < size(); ++row) {
    if (images_[row].counts.errors() > 0) rows.push_back(row);
  }
  std::ranges::stable_sort(rows, std::greater(), [&](int64_t row) {
    return images_[row].counts.errors();
  });
  if (k > 0 && k < std::ssize(rows)) rows.resize(k);
  return rows;
}

std::vector<ImageErrors> DetectionInterpretation::worst_images(
    int64_t k) const {
  std::vector<ImageErrors> worst;
  for (const int64_t row : worst_rows(k)) {
    worst.push_back({indices().at(row), images_[row].counts});
  }
  return worst;
}

BoxEvaluationResult DetectionInterpretation::evaluation() const {
  const Tensors& outputs = predictions_.outputs;
  Tensors targets = predictions_.all_targets;
  for (const size_t i : {1, 4}) {
    if (i < targets.size()) targets[i] = targets[i].to(torch::kLong);
  }
  BoxEvaluation evaluation({.classes = classes_});
  evaluation.add(
      {outputs[0].to(torch::kFloat),
       outputs[1].to(torch::kFloat),
       outputs[2].to(torch::kLong)},
      targets);
  return evaluation.result();
}

std::string DetectionInterpretation::to_string() const {
  size_t width = 5;
  for (const std::string& name : classes_) width = std::max(width, name.size());
  const auto line = [&](const std::string& name,
                        const DetectionCounts& counts) {
    return fmt::format(
        "{:<{}} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        name,
        width,
        counts.objects,
        counts.found,
        counts.missed,
        counts.confused,
        counts.false_positives);
  };
  std::string text = fmt::format(
      "{:<{}} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
      "class",
      width,
      "objects",
      "found",
      "missed",
      "confused",
      "false");
  for (size_t i = 0; i < classes_.size(); ++i) {
    text += line(classes_[i], counts_[i]);
  }
  return text + line("all", total());
}

std::vector<MarkedBox> DetectionInterpretation::marks_of(int64_t row) const {
  const Tensors& outputs = predictions_.outputs;
  const Tensors& targets = predictions_.all_targets;
  const auto labels = row_values<int64_t>(outputs[2][row]);
  const auto scores = row_values<double>(outputs[1][row]);
  const auto actual = row_values<int64_t>(targets[1][row]);
  std::vector<MarkedBox> marks;
  if (targets.size() >= 5) {
    const auto crowds = row_values<int64_t>(targets[4][row]);
    for (int64_t c = 0; c < std::ssize(crowds); ++c) {
      if (crowds[c] < 0) continue;
      marks.push_back(marked(targets[3][row][c], classes_[crowds[c]], kCrowd));
    }
  }
  std::vector<bool> is_missed(actual.size(), true);
  for (int64_t i = 0; i < std::ssize(labels); ++i) {
    const int64_t object = images_[row].object_of[i];
    if (object == kIgnored) continue;
    std::string name = fmt::format("{} {:.2f}", classes_[labels[i]], scores[i]);
    Rgb color = kFalse;
    if (object >= 0) {
      is_missed[object] = false;
      const bool is_right = actual[object] == labels[i];
      color = is_right ? kFound : kConfused;
      if (!is_right) name += fmt::format(" ({})", classes_[actual[object]]);
    }
    marks.push_back(marked(outputs[0][row][i], std::move(name), color));
  }
  for (int64_t k = 0; k < std::ssize(actual); ++k) {
    if (actual[k] < 0 || !is_missed[k]) continue;
    marks.push_back(marked(targets[0][row][k], classes_[actual[k]], kMissed));
  }
  return marks;
}

void DetectionInterpretation::plot_worst(
    const std::filesystem::path& file,
    int64_t k,
    int64_t tile) const {
  save_image(file, draw_worst(k, tile));
}

torch::Tensor DetectionInterpretation::draw_worst(int64_t k, int64_t tile)
    const {
  std::vector<Picture> pictures;
  bool has_crowds = false;
  for (const int64_t row : worst_rows(k)) {
    const int64_t index = indices().at(row);
    Picture picture{
        visible_batch(
            data_,
            dataset_->get_batch({index}, {}),
            /*augments=*/false)
            .images[0],
        {{std::filesystem::path(dataset_->describe(index)).filename().string()},
         {counts_text(images_[row].counts)}}};
    picture.boxes = marks_of(row);
    has_crowds |=
        std::ranges::count(picture.boxes, kCrowd, &MarkedBox::color) > 0;
    pictures.push_back(std::move(picture));
  }
  TERN_CHECK_VALUE(
      !pictures.empty(),
      "[DetectionInterpretation::plot_worst] none of {} images has a missed or "
      "confused object or a false positive; expected at least one. Lower the "
      "score, raise the IoU, or use show_results.",
      size());
  std::vector<CaptionLine> legend = {
      {"found", kFound},
      {"missed", kMissed},
      {"false", kFalse},
      {"confused (actual class)", kConfused}};
  if (has_crowds) legend.push_back({"crowd region", kCrowd});
  return image_grid(
      pictures,
      {.title = fmt::format(
           "Most errors, detections with a score of at least {:.3g}",
           score_),
       .tile = tile,
       .legend = legend});
}

void DetectionInterpretation::plot_confusion_matrix(
    const std::filesystem::path& file,
    bool normalize) const {
  std::vector<std::string> names = classes_;
  names.emplace_back("background");
  save_page(
      file,
      draw_confusion_matrix(matrix_, names, normalize),
      "DetectionInterpretation::plot_confusion_matrix");
}

}  // namespace tern
