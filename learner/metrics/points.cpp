#include "tern/learner/metrics/points.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/metrics/mean_of.h"

namespace tern {

namespace {

// Points of a batch.
struct PointPairs {
  torch::Tensor distance;  // [N, P] kDouble
  torch::Tensor target;    // [N, P, 2] kDouble
  torch::Tensor visible;   // [N, P] kBool
};

class PointMetric final : public MeanMetric {
 public:
  using Count = std::function<SumAndCount(const PointPairs&)>;

  PointMetric(std::string name, bool higher_is_better, Count count)
      : MeanMetric(std::move(name), higher_is_better),
        count_(std::move(count)) {}

  void update(const Tensors& outputs, const Tensors& targets) override {
    const torch::Tensor& pred = outputs[0];
    TERN_CHECK_VALUE(
        targets.size() == 2 && targets[1].defined() && pred.dim() == 3 &&
            pred.size(1) > 0 && pred.size(2) == 2 &&
            torch::isFloatingType(pred.scalar_type()) &&
            torch::isFloatingType(targets[0].scalar_type()) &&
            targets[0].sizes() == pred.sizes() &&
            targets[1].scalar_type() == torch::kBool &&
            targets[1].sizes() == pred.sizes().slice(0, 2),
        "[{}] outputs are {}, targets {}; expected points [N, P, 2] Float, and "
        "as targets points of the same shape and visible [N, P] Bool. Convert "
        "COCO's visibility by `visible > 0`.",
        name(),
        shapes_of(outputs),
        shapes_of(targets));
    const torch::Tensor target = targets[0].to(torch::kDouble);
    const torch::Tensor difference = pred.to(torch::kDouble) - target;
    const auto [sum, count] = count_(
        {torch::hypot(difference.select(2, 0), difference.select(2, 1)),
         target,
         targets[1]});
    add(sum, count);
  }

 private:
  Count count_;
};

// Returns the longer side of the box around each sample's visible points, [N];
// -infinity if no point is visible.
torch::Tensor box_sides(const PointPairs& points) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const torch::Tensor hidden = (~points.visible).unsqueeze(2);
  return (points.target.masked_fill(hidden, -kInfinity).amax(1) -
          points.target.masked_fill(hidden, kInfinity).amin(1))
      .amax(1);
}

// Returns the distance between two points of each sample, [N]; 0 unless both
// are visible.
torch::Tensor distances_of_two(
    const std::string& name,
    const PointPairs& points,
    int64_t first,
    int64_t second) {
  const int64_t count = points.target.size(1);
  TERN_CHECK_VALUE(
      first < count && second < count,
      "[{}] the length is measured between points {} and {}, but there are {} "
      "points; expected two existing points, numbered from 0. Set `first` and "
      "`second`.",
      name,
      first,
      second,
      count);
  const torch::Tensor difference =
      points.target.select(1, first) - points.target.select(1, second);
  const torch::Tensor both =
      points.visible.select(1, first) & points.visible.select(1, second);
  return torch::hypot(difference.select(1, 0), difference.select(1, 1))
      .masked_fill(~both, 0);
}

void check_options(const PckOptions& options) {
  TERN_CHECK_VALUE(
      options.threshold > 0 && std::isfinite(options.threshold),
      "[percentage_of_correct_keypoints] threshold is {}; expected a finite "
      "number > 0, such as 0.2: a fraction of the length.",
      options.threshold);
  TERN_CHECK_VALUE(
      options.length != PckLength::points ||
          (std::min(options.first, options.second) >= 0 &&
           options.first != options.second),
      "[percentage_of_correct_keypoints] the length is measured between points "
      "{} and {}; expected two different points, numbered from 0. Set `first` "
      "and `second`.",
      options.first,
      options.second);
  TERN_CHECK_VALUE(
      options.length != PckLength::image ||
          std::min(options.height, options.width) > 0,
      "[percentage_of_correct_keypoints] the images are {} x {}; expected "
      "their size in pixels for PckLength::image. Set `height` and `width`.",
      options.height,
      options.width);
}

std::string name_of(const PckOptions& options) {
  std::string name = fmt::format("pck_{:g}", options.threshold);
  if (options.length == PckLength::points) name += "_points";
  if (options.length == PckLength::image) name += "_image";
  return name;
}

}  // namespace

Metric percentage_of_correct_keypoints(const PckOptions& options) {
  check_options(options);
  const std::string name = name_of(options);
  const auto lengths = [options, name](const PointPairs& points) {
    switch (options.length) {
      case PckLength::points:
        return distances_of_two(name, points, options.first, options.second);
      case PckLength::image:
        return torch::full(
            {points.target.size(0)},
            std::hypot(options.height, options.width),
            points.target.options());
      default:
        return box_sides(points);
    }
  };
  const auto count = [=](const PointPairs& points) -> SumAndCount {
    const torch::Tensor length = lengths(points).unsqueeze(1);
    // A NaN length is kept, so that the value becomes NaN. Only NaN differs
    // from itself.
    const torch::Tensor counted = points.visible & ~(length <= 0);
    const torch::Tensor excess = points.distance - options.threshold * length;
    const torch::Tensor correct =
        (excess <= 0)
            .to(torch::kDouble)
            .masked_fill(excess.ne(excess), std::nan(""));
    return {correct.masked_fill(~counted, 0).sum(), counted.sum()};
  };
  return std::make_shared<PointMetric>(name, /*higher_is_better=*/true, count);
}

Metric mean_point_distance() {
  const auto count = [](const PointPairs& points) -> SumAndCount {
    return {
        points.distance.masked_fill(~points.visible, 0).sum(),
        points.visible.sum()};
  };
  return std::make_shared<PointMetric>(
      "mean_point_distance",
      /*higher_is_better=*/false,
      count);
}

}  // namespace tern
