#include "tern/learner/metrics/mean_average_precision.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/rank_threads.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::mean_average_precision_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number_of(const nlohmann::json& json) {
  return json.is_null() ? kNan : json.get<double>();
}

std::vector<double> numbers_of(const nlohmann::json& json) {
  std::vector<double> numbers;
  for (const nlohmann::json& number : json)
    numbers.push_back(number_of(number));
  return numbers;
}

Tensors tensors_of(const nlohmann::json& json) {
  Tensors tensors;
  for (const nlohmann::json& one : json) {
    tensors.push_back(torch::tensor(numbers_of(one["numbers"]), torch::kDouble)
                          .view(one["shape"].get<std::vector<int64_t>>())
                          .to(torch::kFloat));
  }
  return tensors;
}

struct Set {
  std::string kind;
  int64_t classes;
  Tensors detections, targets;
  std::vector<double> values;
  std::vector<std::vector<double>> of_classes;
  double precision, recall;

  explicit Set(const nlohmann::json& json)
      : kind(json["kind"]),
        classes(json["classes"]),
        detections(tensors_of(json["detections"])),
        targets(tensors_of(json["targets"])),
        values(numbers_of(json["expected"]["values"])),
        precision(json["expected"]["precision"]),
        recall(json["expected"]["recall"]) {
    for (torch::Tensor* const labels :
         {&detections[2], &targets[1], &targets[4]}) {
      *labels = labels->to(torch::kLong);
    }
    for (const nlohmann::json& of : json["expected"]["of_classes"]) {
      of_classes.push_back(numbers_of(of));
    }
  }

  int64_t images() const { return detections[0].size(0); }
  Tensors detections_of(int64_t begin, int64_t end) const {
    return rows(detections, begin, end);
  }
  Tensors targets_of(int64_t begin, int64_t end) const {
    return rows(targets, begin, end);
  }

 private:
  static Tensors rows(const Tensors& tensors, int64_t begin, int64_t end) {
    Tensors result;
    for (const torch::Tensor& t : tensors) {
      result.push_back(t.slice(0, begin, end));
    }
    return result;
  }
};

// pycocotools' values for the sets of TERN_BOXES or of the fixture.
const std::vector<Set>& all_sets() {
  static const std::vector<Set> sets = [] {
    const char* const live = std::getenv("TERN_BOXES");
    const auto json = nlohmann::json::parse(std::ifstream(
        live ? live
             : in_tests_folder(
                   "learner/metrics/mean_average_precision_fixture.json")));
    std::vector<Set> result;
    for (const nlohmann::json& set : json) result.emplace_back(set);
    return result;
  }();
  return sets;
}

std::vector<double> values_of(const BoxEvaluationResult& result) {
  return {
      result.map,
      result.map_50,
      result.map_75,
      result.map_small,
      result.map_medium,
      result.map_large,
      result.mar_1,
      result.mar_10,
      result.mar_100,
      result.mar_small,
      result.mar_medium,
      result.mar_large};
}

// In the order of the values.
std::vector<Metric> all_metrics() {
  return {
      mean_average_precision(),
      mean_average_precision({.iou = 0.5}),
      mean_average_precision({.iou = 0.75}),
      mean_average_precision({.area = BoxArea::small}),
      mean_average_precision({.area = BoxArea::medium}),
      mean_average_precision({.area = BoxArea::large}),
      mean_average_recall({.max_detections = 1}),
      mean_average_recall({.max_detections = 10}),
      mean_average_recall(),
      mean_average_recall({.area = BoxArea::small}),
      mean_average_recall({.area = BoxArea::medium}),
      mean_average_recall({.area = BoxArea::large})};
}

void expect_near(
    const std::vector<double>& values,
    const std::vector<double>& expected,
    const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_it = std::isnan(expected[i])
                           ? std::isnan(values[i])
                           : std::abs(values[i] - expected[i]) <= 1e-9;
    EXPECT_TRUE(is_it) << what << ", number " << i << ": " << values[i]
                       << "; expected " << expected[i];
  }
}

// Matches the fixture's sum_of.
double sum_of(const torch::Tensor& values) {
  const torch::Tensor all = values.reshape(-1);
  const torch::Tensor weights =
      (torch::arange(all.numel()) * 7919).remainder(101) + 1;
  return (weights * all.nan_to_num(0) / 1000).sum().item<double>();
}

// Detections of one class, without areas or crowds.
Tensors found(
    const std::vector<std::vector<float>>& boxes,
    const std::vector<float>& scores) {
  const auto count = static_cast<int64_t>(scores.size());
  torch::Tensor all = torch::zeros({1, count, 4});
  for (int64_t i = 0; i < count; ++i) all[0][i] = torch::tensor(boxes[i]);
  return {
      all,
      torch::tensor(scores).unsqueeze(0),
      torch::zeros({1, count}, torch::kLong)};
}
Tensors objects(const std::vector<std::vector<float>>& boxes) {
  const Tensors all = found(boxes, std::vector<float>(boxes.size()));
  return {all[0], all[2]};
}

double map_50(const Tensors& detections, const Tensors& targets) {
  Metric metric = mean_average_precision({.iou = 0.5});
  metric.update(detections, targets);
  return metric.compute().item<double>();
}

TEST(MeanAveragePrecision, MatchesPycocotools) {
  for (const Set& set : all_sets()) {
    BoxEvaluation evaluation(
        {.classes = std::vector<std::string>(set.classes, "class"),
         .keep_precision = true});
    evaluation.add(set.detections, set.targets);
    const BoxEvaluationResult result = evaluation.result();
    expect_near(values_of(result), set.values, set.kind);
    const std::vector<std::vector<double>> of_classes = {
        result.map_per_class,
        result.map_50_per_class,
        result.map_75_per_class,
        result.mar_100_per_class};
    for (size_t i = 0; i < of_classes.size(); ++i) {
      expect_near(of_classes[i], set.of_classes[i], set.kind + ", classes");
    }
    // The sum of thousands of values, each within 1e-9.
    EXPECT_NEAR(sum_of(result.precision), set.precision, 1e-7) << set.kind;
    EXPECT_NEAR(sum_of(result.recall), set.recall, 1e-7) << set.kind;
    EXPECT_EQ(result.images, set.images());
  }
}

TEST(MeanAveragePrecision, OfALearnerMatchesPycocotools) {
  for (const Set& set : all_sets()) {
    std::vector<double> values;
    for (Metric metric : all_metrics()) {
      metric.update(set.detections, set.targets);
      values.push_back(metric.compute().item<double>());
    }
    expect_near(values, set.values, set.kind);
  }
}

// Adds a set in batches of any size, in rank order. Some ranks have no batch,
// and some are saved and resumed in between. The result must be bit-identical
// to adding the set in one batch.
class Spread {
 public:
  Spread(const Set& set, std::mt19937_64& random) : set_(set), random_(random) {
    const int64_t ranks = 1 + below(3);
    for (int64_t i = 0; i + 1 < ranks; ++i) {
      ends_.push_back(below(set.images() + 1));
    }
    ends_.push_back(set.images());
    std::ranges::sort(ends_);
  }

  /// \param add  Called with (evaluation or metric, detections, targets).
  template <class Counted, class Add>
  std::vector<Counted> of(const Counted& empty, Add add) {
    std::vector<Counted> result;
    int64_t begin = 0;
    for (const int64_t last : ends_) {
      Counted own = fresh(empty);
      while (begin < last) {
        const int64_t end = std::min(last, begin + below(4));
        add(own, set_.detections_of(begin, end), set_.targets_of(begin, end));
        begin = end;
        if (below(3) == 0) own = resumed(own, empty);
      }
      result.push_back(own);
    }
    testing_support::RankThreads(std::ssize(result)).sync(result);
    return result;
  }

 private:
  int64_t below(int64_t count) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
  }
  static Metric fresh(const Metric& metric) { return metric.fresh_copy(); }
  static BoxEvaluation fresh(const BoxEvaluation& one) { return one; }
  static Metric resumed(const Metric& metric, const Metric& empty) {
    Metric result = empty.fresh_copy();
    result.load_state_dict(metric.state_dict().value());
    return result;
  }
  static BoxEvaluation resumed(
      const BoxEvaluation& one,
      const BoxEvaluation& empty) {
    BoxEvaluation result = empty;
    result.load_state_dict(one.state_dict());
    return result;
  }

  const Set& set_;
  std::mt19937_64& random_;
  std::vector<int64_t> ends_;  // the end of each rank's images
};

void expect_same(double value, double expected, const std::string& what) {
  EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)))
      << what << ": " << value << "; expected " << expected;
}

TEST(MeanAveragePrecision, DoesNotDependOnBatchesOrRanks) {
  for_random_cases(4, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const Set& set = all_sets()[random() % all_sets().size()];
    BoxEvaluation whole;
    whole.add(set.detections, set.targets);
    const std::vector<double> values = values_of(whole.result());
    Spread spread(set, random);
    const auto evaluations = spread.of(
        BoxEvaluation(),
        [](BoxEvaluation& one,
           const Tensors& detections,
           const Tensors& targets) { one.add(detections, targets); });
    for (const BoxEvaluation& one : evaluations) {
      const std::vector<double> spread_values = values_of(one.result());
      for (size_t i = 0; i < values.size(); ++i) {
        expect_same(spread_values[i], values[i], set.kind);
      }
      EXPECT_EQ(one.result().images, set.images());
    }
    for (const Metric& empty : all_metrics()) {
      Metric joint = empty.fresh_copy();
      joint.update(set.detections, set.targets);
      const auto metrics = spread.of(
          empty,
          [](Metric& metric,
             const Tensors& detections,
             const Tensors& targets) { metric.update(detections, targets); });
      for (const Metric& metric : metrics) {
        expect_same(
            metric.compute().item<double>(),
            joint.compute().item<double>(),
            set.kind + ", " + metric.name());
      }
    }
  });
}

// Padding to the largest D and K is not the batches' concern.
TEST(MeanAveragePrecision, BatchesMayHaveDifferentNumbersOfBoxes) {
  Metric metric = mean_average_precision({.iou = 0.5});
  metric.update(
      found({{0, 0, 10, 10}, {50, 50, 60, 60}}, {0.9, 0.8}),
      objects({{0, 0, 10, 10}}));
  metric.update(found({}, {}), objects({{0, 0, 10, 10}, {20, 20, 30, 30}}));
  // One of three objects is found first, so recall reaches 0.33.
  EXPECT_DOUBLE_EQ(metric.compute().item<double>(), 34. / 101);
}

TEST(MeanAveragePrecision, IsTheAreaUnderTheBestPrecisionOfEachRecall) {
  const Tensors two = objects({{0, 0, 10, 10}, {20, 20, 30, 30}});
  const std::vector<float> first = {0, 0, 10, 10}, second = {20, 20, 30, 30},
                           elsewhere = {50, 50, 60, 60};
  EXPECT_EQ(map_50(found({first, second}, {0.3, 0.9}), two), 1);
  // Correct, wrong, correct: precision 1 up to recall 0.5, then 2 / 3.
  EXPECT_DOUBLE_EQ(
      map_50(found({first, elsewhere, second}, {0.9, 0.8, 0.7}), two),
      (51 + 50 * 2. / 3) / 101);
  // A second detection of the same object is wrong.
  EXPECT_DOUBLE_EQ(
      map_50(found({first, first, second}, {0.9, 0.8, 0.7}), two),
      (51 + 50 * 2. / 3) / 101);
  EXPECT_EQ(map_50(found({elsewhere}, {0.9}), two), 0);
  EXPECT_EQ(map_50(found({}, {}), two), 0);
  EXPECT_TRUE(std::isnan(map_50(found({first}, {0.9}), objects({}))));
}

TEST(MeanAveragePrecision, IsNamedAfterItsOptions) {
  EXPECT_EQ(mean_average_precision().name(), "map");
  EXPECT_EQ(mean_average_precision({.iou = 0.5}).name(), "map_50");
  EXPECT_EQ(mean_average_precision({.iou = 0.55}).name(), "map_55");
  EXPECT_EQ(
      mean_average_precision({.iou = 0.75, .area = BoxArea::large}).name(),
      "map_75_large");
  EXPECT_EQ(mean_average_recall().name(), "mar_100");
  EXPECT_EQ(
      mean_average_recall({.max_detections = 10, .area = BoxArea::small})
          .name(),
      "mar_10_small");
  EXPECT_TRUE(mean_average_precision().higher_is_better());
  expect_error<c10::ValueError>(
      [] { mean_average_precision({.iou = 50}); },
      {"[map]", "iou is 50", "0 to 1"});
  expect_error<c10::ValueError>(
      [] { mean_average_recall({.max_detections = 0}); },
      {"[mar_0]", "max_detections is 0", ">= 1"});
}

// COCO's 0.9 is the next smaller number, as in numpy.linspace.
TEST(MeanAveragePrecision, OfOneThresholdIsItsTermOfTheMean) {
  const Set& set = all_sets()[0];
  double sum = 0;
  for (int64_t percent = 50; percent < 100; percent += 5) {
    Metric metric =
        mean_average_precision({.iou = static_cast<double>(percent) / 100});
    metric.update(set.detections, set.targets);
    sum += metric.compute().item<double>();
  }
  EXPECT_NEAR(sum / 10, set.values[0], 1e-9);
  Tensors detections = found({{0, 0, 1, 1}}, {0.5});
  detections[0] = detections[0].to(torch::kDouble);
  detections[0][0][0][3] = std::nextafter(0.9, 0);
  Metric metric = mean_average_precision({.iou = 0.9});
  metric.update(detections, objects({{0, 0, 1, 1}}));
  EXPECT_EQ(metric.compute().item<double>(), 1);
}

TEST(MeanAveragePrecision, DecodesTheOutputsOfTheModel) {
  Metric metric = mean_average_precision(
      {.iou = 0.5, .decode = [](const Tensors& outputs) {
         return found({{0, 0, 10, 10}}, {outputs[0].item<float>()});
       }});
  metric.update({torch::tensor(0.5)}, objects({{0, 0, 10, 10}}));
  EXPECT_EQ(metric.compute().item<double>(), 1);
  EXPECT_EQ(metric.fresh_copy().name(), "map_50");
}

// A Learner reuses the memory of its batches.
TEST(MeanAveragePrecision, CopiesEachBatch) {
  const Tensors detections = found({{0, 0, 10, 10}}, {0.9});
  const Tensors targets = objects({{0, 0, 10, 10}});
  Metric metric = mean_average_precision();
  metric.update(detections, targets);
  for (const torch::Tensor& t : {detections[0], targets[0]}) t.fill_(7);
  detections[2].fill_(-1);
  EXPECT_EQ(metric.compute().item<double>(), 1);
  metric.reset();
  EXPECT_TRUE(std::isnan(metric.compute().item<double>()));
}

// Meta tensors have no values, so reading one would fail.
TEST(MeanAveragePrecision, UpdateDoesNotSynchronizeWithTheDevice) {
  const Set& set = all_sets()[0];
  const auto without_numbers = [](Tensors tensors) {
    for (torch::Tensor& t : tensors) t = t.to(torch::kMeta);
    return tensors;
  };
  Metric metric = mean_average_precision();
  metric.update(
      without_numbers(set.detections),
      without_numbers(set.targets),
      torch::zeros({}, torch::kMeta));
}

TEST(MeanAveragePrecision, WithNaNIsNaN) {
  const Tensors object = objects({{0, 0, 10, 10}});
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(
      map_50(found({{0, 0, 10, 10}, {0, 0, 5, 5}}, {0.9, nan}), object)));
  // The score of padding is ignored.
  Tensors padded = found({{0, 0, 10, 10}, {0, 0, 5, 5}}, {0.9, nan});
  padded[2][0][1] = -1;
  EXPECT_EQ(map_50(padded, object), 1);

  const auto evaluated = [&](const Tensors& detections,
                             const Tensors& targets) {
    BoxEvaluation evaluation;
    evaluation.add(detections, targets);
    return evaluation.result().map_50;
  };
  // A box with NaN never matches.
  for (size_t edge = 0; edge < 4; ++edge) {
    std::vector<float> box = {0, 0, 10, 10};
    box[edge] = nan;
    EXPECT_EQ(evaluated(found({box}, {0.9}), object), 0);
    EXPECT_EQ(evaluated(found({{0, 0, 10, 10}, box}, {0.8, 0.9}), object), 0.5);
    EXPECT_EQ(evaluated(found({{0, 0, 10, 10}}, {0.9}), objects({box})), 0);
    EXPECT_EQ(evaluated(found({box}, {0.9}), objects({box})), 0);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> whole = {-infinity, -infinity, infinity, infinity};
  EXPECT_EQ(evaluated(found({whole}, {0.9}), object), 0);
  EXPECT_TRUE(std::isnan(evaluated(found({whole}, {0.9}), objects({whole}))));
  // Nor does a box without area; two negative sides are not a box.
  EXPECT_EQ(
      evaluated(found({{10, 10, 0, 0}}, {0.9}), objects({{10, 10, 0, 0}})),
      0);
}

TEST(MeanAveragePrecision, UsesAreasAndCrowdsIfGiven) {
  BoxEvaluation evaluation;
  Tensors targets = objects({{0, 0, 10, 10}, {0, 0, 50, 50}});
  targets.push_back(torch::tensor({{5000.f, 0.f}}));  // the first is medium
  evaluation.add(
      found({{0, 0, 10, 10}, {100, 100, 110, 110}}, {0.8, 0.9}),
      targets);
  EXPECT_TRUE(std::isnan(evaluation.result().map_small));
  EXPECT_EQ(evaluation.result().objects_per_class, std::vector<int64_t>({2}));
  EXPECT_DOUBLE_EQ(evaluation.result().mar_medium, 0.5);

  // A detection in a crowd is not wrong, and a crowd does not count as an
  // object.
  evaluation.reset();
  targets.push_back(torch::tensor({{{90.f, 90.f, 200.f, 200.f}}}));
  targets.push_back(torch::zeros({1, 1}, torch::kLong));
  evaluation.add(
      found(
          {{0, 0, 10, 10}, {100, 100, 110, 110}, {120, 120, 140, 140}},
          {0.8, 0.9, 0.7}),
      targets);
  EXPECT_DOUBLE_EQ(evaluation.result().map, 51. / 101);
  EXPECT_EQ(evaluation.result().objects_per_class, std::vector<int64_t>({2}));
}

TEST(MeanAveragePrecision, RejectsInvalidTensors) {
  const Tensors detections = found({{0, 0, 10, 10}}, {0.9});
  const Tensors targets = objects({{0, 0, 10, 10}});
  Tensors with_areas = targets;
  with_areas.push_back(torch::zeros({1, 1}));
  Tensors with_boxes = with_areas;
  with_boxes.push_back(torch::zeros({1, 2, 4}));
  Tensors with_crowds = with_boxes;
  with_crowds.push_back(torch::zeros({1, 2}, torch::kLong));
  BoxEvaluation evaluation;
  evaluation.add(detections, with_areas);
  evaluation.add(detections, with_crowds);

  Metric metric = mean_average_precision();
  const auto refuses = [&](const Tensors& given, const Tensors& wanted) {
    std::string error =
        error_of<c10::ValueError>([&] { metric.update(given, wanted); });
    EXPECT_EQ(error.find("[map] "), 0) << error;
    return error;
  };
  EXPECT_NE(
      refuses({torch::zeros({1, 8, 85})}, targets).find("[1, 8, 85]"),
      std::string::npos);
  EXPECT_NE(
      refuses(detections, with_boxes).find("[1, 2, 4]"),
      std::string::npos);
  for (size_t i = 0; i < 3; ++i) {
    Tensors given = detections;
    given[i] = torch::Tensor();
    if (i > 0) refuses(given, targets);
    given[i] = torch::zeros({1, 2, 4}).to(detections[i].scalar_type());
    refuses(given, targets);
    given[i] = detections[i].to(i == 2 ? torch::kFloat : torch::kLong);
    refuses(given, targets);
  }
  for (size_t i = 0; i < 5; ++i) {
    Tensors wanted = with_crowds;
    wanted[i] = with_crowds[i].repeat_interleave(2, 0);  // two images
    refuses(detections, wanted);
    wanted[i] = with_crowds[i].unsqueeze(-1);
    refuses(detections, wanted);
    wanted[i] = with_crowds[i].to(
        with_crowds[i].is_floating_point() ? torch::kLong : torch::kFloat);
    refuses(detections, wanted);
  }
}

TEST(MeanAveragePrecision, RejectsLabelsBeyondTheClasses) {
  Tensors targets = objects({{0, 0, 10, 10}});
  targets[1].fill_(2);
  BoxEvaluation named({.classes = {"cat", "dog"}});
  named.add(found({{0, 0, 10, 10}}, {0.9}), targets);
  expect_error<c10::ValueError>(
      [&] { named.result(); },
      {"[BoxEvaluation::result]", "a label is 2", "2 classes", "0 to 1"});
  targets[1].fill_(int64_t{1} << 40);
  BoxEvaluation evaluation;
  evaluation.add(found({{0, 0, 10, 10}}, {0.9}), targets);
  expect_error<c10::ValueError>(
      [&] { evaluation.result(); },
      {"a label is 1099511627776", "0 to 99999"});
}

TEST(MeanAveragePrecision, PrintsTwelveLinesAndATableOfClasses) {
  BoxEvaluation evaluation({.classes = {"cat", "dog", "horse"}});
  Tensors targets = objects({{0, 0, 10, 10}, {0, 0, 50, 50}});
  targets[1][0][1] = 2;
  evaluation.add(found({{0, 0, 10, 8}}, {0.9}), targets);
  const BoxEvaluationResult result = evaluation.result();
  EXPECT_EQ(
      result.to_string(),
      "average precision (AP), mean of IoU 0.50 to 0.95     0.350\n"
      "AP at IoU 0.50                                       0.500\n"
      "AP at IoU 0.75                                       0.500\n"
      "AP of small objects, up to 32 x 32 pixels            0.700\n"
      "AP of medium objects, up to 96 x 96 pixels           0.000\n"
      "AP of large objects                                      -\n"
      "average recall (AR), 1 detection a class and image   0.350\n"
      "AR, 10 detections a class and image                  0.350\n"
      "AR, 100 detections a class and image                 0.350\n"
      "AR of small objects                                  0.700\n"
      "AR of medium objects                                 0.000\n"
      "AR of large objects                                      -\n"
      "\n"
      "class  objects      AP    AP50    AP75   AR100\n"
      "cat          1   0.700   1.000   1.000   0.700\n"
      "horse        1   0.000   0.000   0.000   0.000\n");
  EXPECT_TRUE(std::isnan(result.map_per_class[1]));
  EXPECT_FALSE(result.precision.defined());
  EXPECT_EQ(result.recall.sizes(), at::IntArrayRef({10, 3, 4, 3}));
}

}  // namespace
}  // namespace tern::mean_average_precision_test
