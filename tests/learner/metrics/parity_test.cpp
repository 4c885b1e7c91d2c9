#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/metrics/image_quality.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/metrics/multi_label.h"
#include "tern/learner/metrics/ranking.h"
#include "tern/learner/metrics/regression.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/rank_threads.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::metrics_parity_test {
namespace {

using MakeMetric = std::function<Metric()>;

std::map<std::string, MakeMetric> all_metrics() {
  std::map<std::string, MakeMetric> result = {
      {"accuracy", [] { return accuracy(); }},
      {"error_rate", [] { return error_rate(); }},
      {"dice", [] { return dice(); }},
      {"f_beta 0.5", [] { return f_beta(0.5); }},
      {"cohen_kappa none", [] { return cohen_kappa(); }},
      {"cohen_kappa linear", [] { return cohen_kappa(KappaWeights::linear); }},
      {"cohen_kappa quadratic",
       [] { return cohen_kappa(KappaWeights::quadratic); }},
      {"matthews_corrcoef", [] { return matthews_corrcoef(); }},
      {"roc_auc", [] { return roc_auc(); }},
      {"average_precision", [] { return average_precision(); }},
      {"roc_auc_multi", [] { return roc_auc_multi(); }},
      {"average_precision_multi", [] { return average_precision_multi(); }},
      {"accuracy_multi", [] { return accuracy_multi(); }},
      {"accuracy_multi 0.3", [] { return accuracy_multi(0.3); }},
      {"hamming_loss_multi", [] { return hamming_loss_multi(); }},
      {"hamming_loss_multi of probabilities 0.7",
       [] { return hamming_loss_multi(0.7, /*sigmoid=*/false); }},
      {"f1_multi of probabilities 0.7",
       [] { return f1_multi({.threshold = 0.7, .sigmoid = false}); }},
      {"mse", [] { return mse(); }},
      {"mae", [] { return mae(); }},
      {"rmse", [] { return rmse(); }},
      {"r2_score", [] { return r2_score(); }},
      {"explained_variance", [] { return explained_variance(); }},
      {"pearson_corrcoef", [] { return pearson_corrcoef(); }},
      {"spearman_corrcoef", [] { return spearman_corrcoef(); }}};
  for (const int64_t k : {1, 2, 3}) {
    result["top_" + std::to_string(k) + "_accuracy"] = [k] {
      return top_k_accuracy(k);
    };
  }
  for (const int range : {1, 255}) {
    const std::string suffix = " " + std::to_string(range);
    result["psnr" + suffix] = [range] { return psnr(range); };
    result["ssim" + suffix] = [range] { return ssim(range); };
  }
  for (const auto& [name, average] :
       {std::pair{"automatic", Average::automatic},
        {"binary", Average::binary},
        {"macro", Average::macro},
        {"micro", Average::micro},
        {"weighted", Average::weighted}}) {
    const auto add = [&](const std::string& metric, const MakeMetric& make) {
      result[metric + " " + name] = make;
    };
    const Average a = average;
    add("precision", [a] { return precision(a); });
    add("recall", [a] { return recall(a); });
    add("f_beta", [a] { return f_beta(2, a); });
    add("f1", [a] { return f1(a); });
    add("jaccard", [a] { return jaccard(a); });
    if (a == Average::automatic || a == Average::binary) continue;
    add("precision_multi", [a] { return precision_multi({.average = a}); });
    add("recall_multi", [a] { return recall_multi({.average = a}); });
    add("f_beta_multi", [a] { return f_beta_multi(2, {.average = a}); });
    add("f1_multi", [a] { return f1_multi({.average = a}); });
    add("jaccard_multi", [a] { return jaccard_multi({.average = a}); });
  }
  return result;
}

double number_of(const nlohmann::json& json) {
  return json.is_string() ? std::stod(json.get<std::string>())  // nan or inf
                          : json.get<double>();
}

torch::Tensor tensor_of(
    const nlohmann::json& numbers,
    const nlohmann::json& shape) {
  std::vector<double> values;
  for (const nlohmann::json& number : numbers) {
    values.push_back(number_of(number));
  }
  return torch::tensor(values, torch::kDouble)
      .view(shape.get<std::vector<int64_t>>());
}

struct Set {
  std::string name;
  MakeMetric make;
  torch::Tensor outputs, targets;
  double expected;

  Set(const nlohmann::json& json, const MakeMetric& make_any)
      : name(
            json["metric"].get<std::string>() + ", " +
            json["kind"].get<std::string>()),
        make([make_any, ignored = json["ignore_index"].get<int64_t>()] {
          Metric metric = make_any();
          metric.set_ignore_index(ignored);
          return metric;
        }),
        outputs(tensor_of(json["outputs"], json["shape"])),
        targets(tensor_of(json["targets"], json["target_shape"])),
        expected(number_of(json["expected"])) {
    if (make().counts_classes()) targets = targets.to(torch::kLong);
  }
};

// scikit-learn's and scikit-image's values for the sets of TERN_METRICS or of
// the fixture.
const std::vector<Set>& all_sets() {
  static const std::vector<Set> sets = [] {
    const char* const live = std::getenv("TERN_METRICS");
    const auto json = nlohmann::json::parse(std::ifstream(
        live ? live : in_tests_folder("learner/metrics/metrics_fixture.json")));
    const auto metrics = all_metrics();
    std::vector<Set> result;
    for (const nlohmann::json& set : json) {
      result.emplace_back(set, metrics.at(set["metric"]));
    }
    return result;
  }();
  return sets;
}

void expect_value(const Metric& metric, const Set& set, const char* where) {
  const double value = metric.compute().item<double>();
  const double error = std::abs(value - set.expected);
  const bool is_it =
      std::isnan(set.expected)
          ? std::isnan(value)
          : value == set.expected ||
                error <= 1e-9 * std::max(1., std::abs(set.expected));
  EXPECT_TRUE(is_it) << set.name << ", " << where << ": " << value
                     << "; expected " << set.expected;
}

class Spread {
 public:
  Spread(const Set& set, std::mt19937_64& random)
      : set_(set), random_(random) {}

  /// Returns the metrics of 1 to 4 ranks. They share the rows in any order, in
  /// batches of any size, including empty ones; some ranks may have no batch.
  std::vector<Metric> metrics() {
    const int64_t rows = set_.outputs.size(0);
    std::vector<int64_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const torch::Tensor index = torch::tensor(order, torch::kLong);
    const torch::Tensor outputs = set_.outputs.index_select(0, index);
    torch::Tensor targets = set_.targets.index_select(0, index);
    const torch::Tensor integers = targets.to(torch::kLong);
    if (targets.equal(integers) && below(2) == 0) targets = integers;

    std::vector<Metric> result;
    const int64_t ranks = 1 + below(4), first = below(ranks);
    const int64_t with_batches = 1 + below(ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      result.push_back(set_.make());
      if (below(8) > 0) continue;
      spoil(result.back());
      result.back().reset();
    }
    const int64_t largest = 1 + below(8);
    for (int64_t begin = 0; begin < rows || below(2) == 0;) {
      const int64_t end = std::min(rows, begin + below(largest + 1));
      Metric& metric = result[(first + below(with_batches)) % ranks];
      metric.update(
          {outputs.slice(0, begin, end)},
          {targets.slice(0, begin, end)});
      if (below(4) == 0) metric = resumed(metric);
      begin = end;
    }
    return result;
  }

 private:
  int64_t below(int64_t count) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
  }

  void spoil(Metric& metric) const {
    metric.update(
        {torch::full_like(set_.outputs, std::nan(""))},
        {set_.targets});
    EXPECT_TRUE(std::isnan(metric.compute().item<double>())) << set_.name;
  }

  // The state may share memory with the metric; later changes to the metric
  // must not affect the resumed one.
  Metric resumed(Metric& metric) const {
    Metric result = set_.make();
    result.load_state_dict(metric.state_dict().value());
    spoil(metric);
    return result;
  }

  const Set& set_;
  std::mt19937_64& random_;
};

TEST(MetricsParity, MatchesScikitLearn) {
  std::set<std::string> names;
  for (const Set& set : all_sets()) {
    Metric metric = set.make();
    metric.update({set.outputs}, {set.targets});
    expect_value(metric, set, "in one batch");
    names.insert(set.name.substr(0, set.name.find(',')));
  }
  EXPECT_EQ(names.size(), all_metrics().size());
}

TEST(MetricsParity, DoesNotDependOnBatchesOrRanks) {
  for_random_cases(2, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const Set& set : all_sets()) {
      try {
        std::vector<Metric> metrics = Spread(set, random).metrics();
        testing_support::RankThreads(std::ssize(metrics)).sync(metrics);
        for (const Metric& metric : metrics) {
          expect_value(metric, set, "in batches of ranks");
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << set.name << ": " << message_of(error);
      }
    }
  });
}

TEST(MetricsParity, OfRanksWithoutDataIsNaN) {
  for (const auto& [name, make] : all_metrics()) {
    Metric metric = make();
    metric.sync(AllReduce([](const torch::Tensor&) {}));
    EXPECT_TRUE(std::isnan(metric.compute().item<double>())) << name;
  }
}

// Softmax turns infinite scores into NaN, and a NaN target has no rank.
TEST(MetricsParity, ScoresAndTargetsThatCannotBeRankedGiveNaN) {
  torch::Tensor scores = torch::randn({6, 2});
  scores[3][1] = std::numeric_limits<float>::infinity();
  for (Metric metric : {roc_auc(), average_precision()}) {
    metric.update({scores}, {torch::arange(6) % 2});
    EXPECT_TRUE(std::isnan(metric.compute().item<double>())) << metric.name();
  }
  torch::Tensor targets = torch::randn({6});
  targets[2] = std::nan("");
  Metric spearman = spearman_corrcoef();
  spearman.update({torch::randn({6})}, {targets});
  EXPECT_TRUE(std::isnan(spearman.compute().item<double>()));
}

}  // namespace
}  // namespace tern::metrics_parity_test
