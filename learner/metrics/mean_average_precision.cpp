#include "tern/learner/metrics/mean_average_precision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// ---- Stored rows of a batch ----

// Rows are grouped by image. Each image begins with a row of kind `image`, so
// that the rows of several batches or ranks can be concatenated.

enum class RowKind { image, detection, object, crowd };
enum Column { kKind, kLabel, kX1, kY1, kX2, kY2, kScoreOrArea, kColumns };

bool are_boxes(const torch::Tensor& boxes, int64_t images) {
  return boxes.defined() && boxes.dim() == 3 && boxes.size(0) == images &&
         boxes.size(2) == 4 && torch::isFloatingType(boxes.scalar_type());
}

// True if there is one number for each box.
bool are_numbers(const torch::Tensor& numbers, const torch::Tensor& boxes) {
  return numbers.defined() && torch::isFloatingType(numbers.scalar_type()) &&
         numbers.sizes() == boxes.sizes().slice(0, 2);
}
bool are_labels(const torch::Tensor& labels, const torch::Tensor& boxes) {
  return labels.defined() && labels.scalar_type() == torch::kLong &&
         labels.sizes() == boxes.sizes().slice(0, 2);
}

void check_detections(const std::string& asker, const Tensors& detections) {
  TERN_CHECK_VALUE(
      detections.size() == 3 && detections[0].defined() &&
          detections[0].dim() == 3 &&
          are_boxes(detections[0], detections[0].size(0)) &&
          are_numbers(detections[1], detections[0]) &&
          are_labels(detections[2], detections[0]),
      "[{}] detections are {}; expected boxes [N, D, 4] Float, scores [N, D] "
      "Float and labels [N, D] Long, -1 for none. If they are a detector's raw "
      "outputs, set `data.outputs[0].activation = Activation::detections`, so "
      "that a Learner decodes them, or call `decode_detections`; for other "
      "outputs set the metric's option `decode` to a function.",
      asker,
      shapes_of(detections));
}

void check_targets(
    const std::string& asker,
    const Tensors& targets,
    int64_t images) {
  const size_t count = targets.size();
  TERN_CHECK_VALUE(
      (count == 2 || count == 3 || count == 5) &&
          are_boxes(targets[0], images) && are_labels(targets[1], targets[0]) &&
          (count < 3 || are_numbers(targets[2], targets[0])) &&
          (count < 5 || (are_boxes(targets[3], images) &&
                         are_labels(targets[4], targets[3]))),
      "[{}] targets are {} for {} images; expected boxes [N, K, 4] Float and "
      "labels [N, K] Long, -1 for none, then areas [N, K] Float or nothing, "
      "then crowd boxes [N, C, 4] Float and their labels [N, C] Long or "
      "nothing. Give zeros for unknown areas.",
      asker,
      shapes_of(targets),
      images);
}

// [N, M, 7], kFloat or kDouble.
torch::Tensor rows_of(
    RowKind kind,
    const torch::Tensor& labels,
    const torch::Tensor& boxes,
    const torch::Tensor& values) {
  const auto column = [](const torch::Tensor& numbers) {
    return numbers.to(torch::kFloat).unsqueeze(-1);
  };
  return torch::cat(
      {column(torch::full_like(labels, static_cast<int64_t>(kind))),
       column(labels),
       boxes,
       values.unsqueeze(-1)},
      -1);
}

// Includes rows with labels below 0, because dropping them would synchronize
// with the device.
torch::Tensor rows_of_batch(const Tensors& detections, const Tensors& targets) {
  const int64_t images = detections[0].size(0);
  const auto no_value = [](const torch::Tensor& labels) {
    return torch::zeros_like(labels, torch::kFloat);
  };
  const torch::Tensor label = detections[2].new_zeros({images, 1});
  const torch::Tensor box =
      torch::zeros({images, 1, 4}, label.options().dtype(torch::kFloat));
  Tensors rows = {
      rows_of(RowKind::image, label, box, no_value(label)),
      rows_of(RowKind::detection, detections[2], detections[0], detections[1]),
      rows_of(
          RowKind::object,
          targets[1],
          targets[0],
          targets.size() > 2 ? targets[2] : no_value(targets[1]))};
  if (targets.size() == 5) {
    rows.push_back(
        rows_of(RowKind::crowd, targets[4], targets[3], no_value(targets[4])));
  }
  return torch::cat(rows, 1).flatten(0, 1);
}

// ---- Boxes by class ----

constexpr int64_t kMaxLabel = 99'999;

struct Region {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double area = 0;
};

struct Detection {
  Region box;
  double score;
  int64_t image;
};

struct Object {
  Region box;
  double area;
  bool is_crowd;
  int64_t image;
};

// Both are sorted by image.
struct ClassBoxes {
  std::vector<Detection> detections;
  std::vector<Object> objects;
};

struct BoxesByClass {
  std::vector<ClassBoxes> classes;
  int64_t images = 0;
  bool has_nan_score = false;
};

Region region_of(const double* row) {
  const Region box = {
      .x1 = row[kX1],
      .y1 = row[kY1],
      .x2 = row[kX2],
      .y2 = row[kY2]};
  // False for NaN.
  if (!(box.x2 > box.x1 && box.y2 > box.y1)) return {};
  return {
      .x1 = box.x1,
      .y1 = box.y1,
      .x2 = box.x2,
      .y2 = box.y2,
      .area = (box.x2 - box.x1) * (box.y2 - box.y1)};
}

BoxesByClass boxes_by_class(const torch::Tensor& table) {
  BoxesByClass result;
  if (!table.defined()) return result;
  const torch::Tensor rows = table.to(torch::kCPU, torch::kDouble).contiguous();
  const double* row = rows.const_data_ptr<double>();
  for (int64_t i = 0; i < rows.size(0); ++i, row += kColumns) {
    const auto kind = static_cast<RowKind>(row[kKind]);
    if (kind == RowKind::image) {
      ++result.images;
      continue;
    }
    TERN_CHECK_VALUE(
        row[kLabel] <= kMaxLabel,
        "[BoxEvaluation] a label is {:.0f}; expected a class from 0 to {}, or "
        "-1. Number the classes from 0.",
        row[kLabel],
        kMaxLabel);
    const auto label = static_cast<size_t>(row[kLabel]);
    if (label >= result.classes.size()) result.classes.resize(label + 1);
    ClassBoxes& boxes = result.classes[label];
    const Region box = region_of(row);
    const double value = row[kScoreOrArea];
    const int64_t image = result.images;
    if (kind == RowKind::detection) {
      boxes.detections.push_back({box, value, image});
      result.has_nan_score |= std::isnan(value);
    } else {
      const double area = value > 0 ? value : box.area;
      boxes.objects.push_back({box, area, kind == RowKind::crowd, image});
    }
  }
  return result;
}

// ---- COCO's protocol ----

constexpr size_t kMaxAreas = 4;
constexpr int64_t kRecalls = 101;
constexpr std::array<int64_t, 3> kMaxDetections = {1, 10, 100};

// Bit-identical to numpy.linspace(.5, .95, 10).
constexpr std::array<double, 10> kIous =
    {0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.8999999999999999, 0.95};

struct AreaRange {
  const char* name;
  double least, most;
};

AreaRange range_of(BoxArea area) {
  constexpr double kSmall = 32 * 32, kMedium = 96 * 96, kAll = 1e10;
  switch (area) {
    case BoxArea::small:
      return {"small", 0, kSmall};
    case BoxArea::medium:
      return {"medium", kSmall, kMedium};
    case BoxArea::large:
      return {"large", kMedium, kAll};
    default:
      return {"all", 0, kAll};
  }
}

struct Protocol {
  std::vector<double> ious;             // T, at most 32
  std::vector<AreaRange> areas;         // A, at most kMaxAreas
  std::vector<int64_t> max_detections;  // M, ascending
  bool keep_precision = false;
};

// Result for a detection that is among the highest scores of its image.
struct Verdict {
  double score = 0;
  int64_t rank = 0;  // within its class and image, from 0
  // Per area, one bit per IoU threshold: set in `hits` if the detection matches
  // an object that counts, in `ignored` if the detection does not count.
  std::array<uint32_t, kMaxAreas> hits = {}, ignored = {};
};

struct ClassVerdicts {
  std::vector<Verdict> detections;
  std::array<int64_t, kMaxAreas> objects = {};  // objects that count, per area
};

double overlap(const Detection& detection, const Object& object) {
  const Region &a = detection.box, &b = object.box;
  const double width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const double height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  if (!(width > 0 && height > 0)) return 0;
  const double common = width * height;
  return common / (object.is_crowd ? a.area : a.area + b.area - common);
}

struct Candidate {
  size_t object;
  double iou;
};

bool is_outside(double area, const AreaRange& range) {
  return area < range.least || area > range.most;
}

// Matches the detections of one class in one image, highest score first. Each
// is matched with the free object that has the highest IoU. Objects that count
// take precedence over crowds and objects of other sizes.
class ImageMatcher {
 public:
  explicit ImageMatcher(const Protocol& protocol) : protocol_(protocol) {
    for (const double iou : protocol.ious) {
      thresholds_.push_back(std::min(iou, 1 - 1e-10));
    }
    lowest_ = *std::min_element(thresholds_.begin(), thresholds_.end());
  }

  void match(
      c10::ArrayRef<Detection> detections,
      c10::ArrayRef<Object> objects) {
    objects_ = objects;
    order_.resize(detections.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return detections[a].score > detections[b].score;
    });
    const auto kept = static_cast<size_t>(protocol_.max_detections.back());
    if (order_.size() > kept) order_.resize(kept);
    find_candidates(detections);

    const size_t first = verdicts_.detections.size();
    for (size_t i = 0; i < order_.size(); ++i) {
      verdicts_.detections.push_back(
          {.score = detections[order_[i]].score,
           .rank = static_cast<int64_t>(i)});
    }
    for (size_t area = 0; area < protocol_.areas.size(); ++area) {
      begin_area(area);
      for (size_t i = 0; i < order_.size(); ++i) {
        judge(detections[order_[i]], i, area, verdicts_.detections[first + i]);
      }
    }
  }

  /// Returns the results of all images.
  ClassVerdicts take() { return std::exchange(verdicts_, {}); }

 private:
  // Lists the objects that each detection may match, in their order.
  void find_candidates(c10::ArrayRef<Detection> detections) {
    candidates_.clear();
    ends_.clear();
    for (const size_t i : order_) {
      for (size_t object = 0; object < objects_.size(); ++object) {
        const double iou = overlap(detections[i], objects_[object]);
        if (iou >= lowest_) candidates_.push_back({object, iou});
      }
      ends_.push_back(candidates_.size());
    }
  }

  void begin_area(size_t area) {
    taken_.assign(objects_.size(), 0);
    counts_.clear();
    for (const Object& object : objects_) {
      const bool counts =
          !object.is_crowd && !is_outside(object.area, protocol_.areas[area]);
      counts_.push_back(counts);
      verdicts_.objects[area] += counts ? 1 : 0;
    }
  }

  void judge(
      const Detection& detection,
      size_t place,
      size_t area,
      Verdict& verdict) {
    const bool outside = is_outside(detection.box.area, protocol_.areas[area]);
    const size_t begin = place == 0 ? 0 : ends_[place - 1];
    const c10::ArrayRef<Candidate> candidates(
        candidates_.data() + begin,
        ends_[place] - begin);
    for (size_t i = 0; i < thresholds_.size(); ++i) {
      const uint32_t bit = uint32_t{1} << i;
      const Candidate* best = find(candidates, thresholds_[i], bit, true);
      if (best == nullptr) best = find(candidates, thresholds_[i], bit, false);
      if (best != nullptr) taken_[best->object] |= bit;
      if (best != nullptr && counts_[best->object]) {
        verdict.hits[area] |= bit;
      } else if (best != nullptr || outside) {
        verdict.ignored[area] |= bit;
      }
    }
  }

  // Searches the objects that count, or the objects that do not; among equal
  // objects, takes the last.
  const Candidate* find(
      c10::ArrayRef<Candidate> candidates,
      double threshold,
      uint32_t bit,
      bool counts) const {
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates) {
      const size_t object = candidate.object;
      const bool is_free =
          objects_[object].is_crowd || (taken_[object] & bit) == 0;
      if (counts_[object] == counts && is_free && candidate.iou >= threshold) {
        threshold = candidate.iou;
        best = &candidate;
      }
    }
    return best;
  }

  const Protocol& protocol_;
  std::vector<double> thresholds_;
  double lowest_ = 0;
  ClassVerdicts verdicts_;
  // Of the current image.
  c10::ArrayRef<Object> objects_;
  std::vector<size_t> order_;
  std::vector<Candidate> candidates_;
  std::vector<size_t> ends_;  // end of each detection's candidates
  // Of the current area.
  std::vector<uint32_t> taken_;  // one bit per IoU threshold
  std::vector<bool> counts_;
};

// Sorted by score, highest first; equal scores by image.
ClassVerdicts verdicts_of(const ClassBoxes& boxes, const Protocol& protocol) {
  ImageMatcher matcher(protocol);
  const auto& [detections, objects] = boxes;
  // Returns the `items` from `begin` on that belong to the image.
  const auto of_image = [](const auto& items, size_t& begin, int64_t image) {
    const size_t first = begin;
    while (begin < items.size() && items[begin].image == image) ++begin;
    return c10::ArrayRef(items.data() + first, begin - first);
  };
  size_t detection = 0, object = 0;
  while (detection < detections.size() || object < objects.size()) {
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    const int64_t image = std::min(
        detection < detections.size() ? detections[detection].image : kNone,
        object < objects.size() ? objects[object].image : kNone);
    const auto found = of_image(detections, detection, image);
    const auto wanted = of_image(objects, object, image);
    matcher.match(found, wanted);
  }
  ClassVerdicts result = matcher.take();
  std::ranges::stable_sort(
      result.detections,
      std::ranges::greater(),
      &Verdict::score);
  return result;
}

// For one class, area, number of detections and IoU threshold.
struct Curve {
  std::vector<double> precision = std::vector<double>(kRecalls, 0.);
  double recall = 0;
};

Curve curve_of(
    const ClassVerdicts& verdicts,
    size_t area,
    int64_t max_detections,
    uint32_t bit) {
  const auto objects = static_cast<double>(verdicts.objects[area]);
  std::vector<double> precision;  // at each hit
  double counted = 0;
  for (const Verdict& detection : verdicts.detections) {
    if (detection.rank >= max_detections) continue;
    if ((detection.ignored[area] & bit) != 0) continue;
    ++counted;
    if ((detection.hits[area] & bit) == 0) continue;
    precision.push_back(static_cast<double>(precision.size() + 1) / counted);
  }
  // At each recall, takes the best precision at this or a higher recall.
  for (size_t i = precision.size(); i-- > 1;) {
    precision[i - 1] = std::max(precision[i - 1], precision[i]);
  }
  Curve curve;
  curve.recall = static_cast<double>(precision.size()) / objects;
  size_t hit = 0;
  for (int64_t i = 0; i < kRecalls; ++i) {
    const double recall = static_cast<double>(i) * 0.01;
    while (hit < precision.size() &&
           static_cast<double>(hit + 1) / objects < recall) {
      ++hit;
    }
    if (hit == precision.size()) break;
    curve.precision[i] = precision[hit];
  }
  return curve;
}

// NaN if a class has no objects of an area.
struct Curves {
  torch::Tensor average_precision;  // [T, K, A, M] kDouble
  torch::Tensor recall;             // the same
  torch::Tensor precision;          // [T, R, K, A, M] kDouble, if kept
};

Curves curves_of(const BoxesByClass& boxes, const Protocol& protocol) {
  const auto size = [](const auto& items) {
    return static_cast<int64_t>(items.size());
  };
  const int64_t t = size(protocol.ious), k = size(boxes.classes),
                a = size(protocol.areas), m = size(protocol.max_detections);
  const auto of_nan = [](const std::vector<int64_t>& sizes) {
    return torch::full(sizes, std::nan(""), torch::kDouble);
  };
  Curves curves = {of_nan({t, k, a, m}), of_nan({t, k, a, m}), {}};
  if (protocol.keep_precision)
    curves.precision = of_nan({t, kRecalls, k, a, m});
  if (boxes.has_nan_score) return curves;
  auto average = curves.average_precision.accessor<double, 4>();
  auto recall = curves.recall.accessor<double, 4>();
  for (int64_t label = 0; label < k; ++label) {
    // A class without objects is not counted.
    if (boxes.classes[label].objects.empty()) continue;
    const ClassVerdicts verdicts = verdicts_of(boxes.classes[label], protocol);
    for (int64_t area = 0; area < a; ++area) {
      if (verdicts.objects[area] == 0) continue;
      for (int64_t most = 0; most < m; ++most) {
        const int64_t limit = protocol.max_detections[most];
        for (int64_t iou = 0; iou < t; ++iou) {
          const Curve curve =
              curve_of(verdicts, area, limit, uint32_t{1} << iou);
          average[iou][label][area][most] =
              std::reduce(curve.precision.begin(), curve.precision.end()) /
              kRecalls;
          recall[iou][label][area][most] = curve.recall;
          if (!protocol.keep_precision) continue;
          auto kept = curves.precision.accessor<double, 5>();
          for (int64_t i = 0; i < kRecalls; ++i) {
            kept[iou][i][label][area][most] = curve.precision[i];
          }
        }
      }
    }
  }
  return curves;
}

// The mean of all values that are not NaN; NaN if there are none.
double mean_of_known(const torch::Tensor& values) {
  return values.nanmean().item<double>();
}

// \param values  [T, K].
std::vector<double> means_of_classes(const torch::Tensor& values) {
  const torch::Tensor means = values.nanmean(0).contiguous();
  const double* const begin = means.const_data_ptr<double>();
  return {begin, begin + means.numel()};
}

// ---- The state of an evaluation: rows of all batches ----

void add_rows(
    const std::string& asker,
    const Tensors& detections,
    const Tensors& targets,
    Tensors& rows) {
  check_detections(asker, detections);
  check_targets(asker, targets, detections[0].size(0));
  const torch::NoGradGuard no_grad;
  rows.push_back(rows_of_batch(detections, targets));
}

// [n, 7] kDouble; undefined before the first batch.
torch::Tensor table_of(const Tensors& rows) {
  if (rows.empty()) return {};
  const torch::Tensor table = torch::cat(rows).to(torch::kDouble);
  return table.index({table.select(1, kLabel) >= 0});
}

void sync_rows(const AllReduce& all_reduce, Tensors& rows) {
  const torch::Tensor all = all_reduce.gather(table_of(rows));
  if (all.defined()) rows = {all};
}

StateDict state_of(const Tensors& rows) {
  return counted_state(table_of(rows));
}

Tensors rows_of_state(const StateDict& state) {
  const torch::Tensor table = counts_of_state(state);
  return table.defined() ? Tensors{table} : Tensors();
}

}  // namespace

// ---- Without a Learner ----

BoxEvaluation::BoxEvaluation(BoxEvaluationOptions options)
    : options_(std::move(options)) {}

void BoxEvaluation::add(const Tensors& detections, const Tensors& targets) {
  add_rows("BoxEvaluation::add", detections, targets, rows_);
}

void BoxEvaluation::sync(const AllReduce& all_reduce) {
  sync_rows(all_reduce, rows_);
}

StateDict BoxEvaluation::state_dict() const {
  return state_of(rows_);
}

void BoxEvaluation::load_state_dict(const StateDict& state) {
  rows_ = rows_of_state(state);
}

BoxEvaluationResult BoxEvaluation::result() const {
  Protocol protocol = {
      .ious = {kIous.begin(), kIous.end()},
      .areas = {},
      .max_detections = {kMaxDetections.begin(), kMaxDetections.end()},
      .keep_precision = options_.keep_precision};
  for (const BoxArea area :
       {BoxArea::all, BoxArea::small, BoxArea::medium, BoxArea::large}) {
    protocol.areas.push_back(range_of(area));
  }
  BoxesByClass boxes = boxes_by_class(table_of(rows_));
  const size_t named = options_.classes.size();
  TERN_CHECK_VALUE(
      named == 0 || boxes.classes.size() <= named,
      "[BoxEvaluation::result] a label is {} and there are names for {} "
      "classes; expected labels from 0 to {}. Name all classes, or none.",
      boxes.classes.size() - 1,
      named,
      named - 1);
  boxes.classes.resize(std::max(named, boxes.classes.size()));
  const auto [average, recall, precision] = curves_of(boxes, protocol);

  // [T, K] for an area, with at most 100 detections.
  const auto of_area = [](const torch::Tensor& values, BoxArea area) {
    return values.select(-1, kMaxDetections.size() - 1)
        .select(-1, static_cast<int64_t>(area));
  };
  const torch::Tensor all = of_area(average, BoxArea::all);
  const torch::Tensor all_50 = all.narrow(0, 0, 1);
  const torch::Tensor all_75 = all.narrow(0, 5, 1);
  const auto map = [&](BoxArea area) {
    return mean_of_known(of_area(average, area));
  };
  const auto mar = [&](BoxArea area) {
    return mean_of_known(of_area(recall, area));
  };
  const auto mar_with = [&](int64_t place) {
    return mean_of_known(recall.select(-1, place).select(-1, 0));
  };
  BoxEvaluationResult result = {
      .map = map(BoxArea::all),
      .map_50 = mean_of_known(all_50),
      .map_75 = mean_of_known(all_75),
      .map_small = map(BoxArea::small),
      .map_medium = map(BoxArea::medium),
      .map_large = map(BoxArea::large),
      .mar_1 = mar_with(0),
      .mar_10 = mar_with(1),
      .mar_100 = mar_with(2),
      .mar_small = mar(BoxArea::small),
      .mar_medium = mar(BoxArea::medium),
      .mar_large = mar(BoxArea::large),
      .classes = options_.classes,
      .map_per_class = means_of_classes(all),
      .map_50_per_class = means_of_classes(all_50),
      .map_75_per_class = means_of_classes(all_75),
      .mar_100_per_class = means_of_classes(of_area(recall, BoxArea::all)),
      .objects_per_class = {},
      .images = boxes.images,
      .precision = precision,
      .recall = recall};
  for (const ClassBoxes& one : boxes.classes) {
    result.objects_per_class.push_back(
        std::ranges::count(one.objects, false, &Object::is_crowd));
  }
  for (size_t i = named; i < boxes.classes.size(); ++i) {
    result.classes.push_back(std::to_string(i));
  }
  return result;
}

std::string BoxEvaluationResult::to_string() const {
  const auto number = [](double value) {
    return std::isnan(value) ? "-" : fmt::format("{:.3f}", value);
  };
  const std::array<std::pair<const char*, double>, 12> lines = {{
      {"average precision (AP), mean of IoU 0.50 to 0.95", map},
      {"AP at IoU 0.50", map_50},
      {"AP at IoU 0.75", map_75},
      {"AP of small objects, up to 32 x 32 pixels", map_small},
      {"AP of medium objects, up to 96 x 96 pixels", map_medium},
      {"AP of large objects", map_large},
      {"average recall (AR), 1 detection a class and image", mar_1},
      {"AR, 10 detections a class and image", mar_10},
      {"AR, 100 detections a class and image", mar_100},
      {"AR of small objects", mar_small},
      {"AR of medium objects", mar_medium},
      {"AR of large objects", mar_large},
  }};
  std::string text;
  for (const auto& [what, value] : lines) {
    text += fmt::format("{:<52}{:>6}\n", what, number(value));
  }
  size_t width = std::string("class").size();
  for (const std::string& name : classes) width = std::max(width, name.size());
  text += fmt::format(
      "\n{:<{}}{:>9}{:>8}{:>8}{:>8}{:>8}\n",
      "class",
      width,
      "objects",
      "AP",
      "AP50",
      "AP75",
      "AR100");
  for (size_t i = 0; i < classes.size(); ++i) {
    if (objects_per_class[i] == 0) continue;
    text += fmt::format(
        "{:<{}}{:>9}{:>8}{:>8}{:>8}{:>8}\n",
        classes[i],
        width,
        objects_per_class[i],
        number(map_per_class[i]),
        number(map_50_per_class[i]),
        number(map_75_per_class[i]),
        number(mar_100_per_class[i]));
  }
  return text;
}

// ---- For a Learner ----

namespace {

class BoxMetric final : public MetricImpl {
 public:
  /// \param value  The curve to average, for one area and number of detections.
  BoxMetric(
      std::string name,
      Protocol protocol,
      torch::Tensor Curves::*value,
      DecodeBoxes decode)
      : name_(std::move(name)),
        protocol_(std::move(protocol)),
        value_(value),
        decode_(std::move(decode)) {}

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  bool takes_detections() const override { return !decode_; }
  void reset() override { rows_.clear(); }
  void update(const Tensors& outputs, const Tensors& targets) override {
    add_rows(name_, decode_ ? decode_(outputs) : outputs, targets, rows_);
  }
  torch::Tensor compute() const override {
    const BoxesByClass boxes = boxes_by_class(table_of(rows_));
    return torch::scalar_tensor(
        mean_of_known(curves_of(boxes, protocol_).*value_),
        torch::kDouble);
  }
  void sync(const AllReduce& all_reduce) override {
    sync_rows(all_reduce, rows_);
  }
  std::optional<StateDict> state_dict() const override {
    return state_of(rows_);
  }
  void load_state_dict(const StateDict& state) override {
    rows_ = rows_of_state(state);
  }

 private:
  std::string name_;
  Protocol protocol_;
  torch::Tensor Curves::*value_;
  DecodeBoxes decode_;
  Tensors rows_;
};

// Appends the IoU threshold and the area, if given, to the name.
Metric box_metric(
    std::string name,
    torch::Tensor Curves::*value,
    double iou,
    BoxArea area,
    int64_t max_detections,
    const DecodeBoxes& decode) {
  TERN_CHECK_VALUE(
      iou >= 0 && iou <= 1,
      "[{}] iou is {}; expected a number from 0 to 1. Leave it 0 for the mean "
      "over 0.5, 0.55, ... 0.95.",
      name,
      iou);
  TERN_CHECK_VALUE(
      max_detections >= 1,
      "[{}] max_detections is {}; expected a number >= 1, such as 100.",
      name,
      max_detections);
  Protocol protocol = {
      .ious = {kIous.begin(), kIous.end()},
      .areas = {range_of(area)},
      .max_detections = {max_detections}};
  if (iou > 0) {
    name += fmt::format("_{:g}", 100 * iou);
    // Uses the value in kIous for 0.9, which differs in the last bit.
    const auto* const same = std::ranges::find_if(kIous, [&](double known) {
      return std::abs(known - iou) < 1e-12;
    });
    protocol.ious = {same != kIous.end() ? *same : iou};
  }
  if (area != BoxArea::all) name += fmt::format("_{}", range_of(area).name);
  return std::make_shared<BoxMetric>(
      std::move(name),
      std::move(protocol),
      value,
      decode);
}

}  // namespace

Metric mean_average_precision(const MeanAveragePrecisionOptions& options) {
  return box_metric(
      "map",
      &Curves::average_precision,
      options.iou,
      options.area,
      kMaxDetections.back(),
      options.decode);
}

Metric mean_average_recall(const MeanAverageRecallOptions& options) {
  return box_metric(
      fmt::format("mar_{}", options.max_detections),
      &Curves::recall,
      options.iou,
      options.area,
      options.max_detections,
      options.decode);
}

}  // namespace tern
