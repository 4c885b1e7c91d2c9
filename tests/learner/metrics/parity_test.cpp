#include <barrier>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/metrics/image_quality.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/metrics/multi_label.h"
#include "tern/learner/metrics/ranking.h"
#include "tern/learner/metrics/regression.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::metrics_parity_test {
namespace {

const std::map<std::string, std::function<Metric()>> kMetrics = {
    {"precision", [] { return precision(); }},
    {"precision weighted", [] { return precision(Average::weighted); }},
    {"recall macro", [] { return recall(Average::macro); }},
    {"f_beta micro", [] { return f_beta(2, Average::micro); }},
    {"f1", [] { return f1(); }},
    {"dice", [] { return dice(); }},
    {"jaccard", [] { return jaccard(); }},
    {"jaccard macro", [] { return jaccard(Average::macro); }},
    {"jaccard micro", [] { return jaccard(Average::micro); }},
    {"cohen_kappa", [] { return cohen_kappa(); }},
    {"cohen_kappa linear", [] { return cohen_kappa(KappaWeights::linear); }},
    {"cohen_kappa quadratic",
     [] { return cohen_kappa(KappaWeights::quadratic); }},
    {"matthews_corrcoef", [] { return matthews_corrcoef(); }},
    {"roc_auc", [] { return roc_auc(); }},
    {"average_precision", [] { return average_precision(); }},
    {"roc_auc_multi", [] { return roc_auc_multi(); }},
    {"average_precision_multi", [] { return average_precision_multi(); }},
    {"hamming_loss_multi", [] { return hamming_loss_multi(); }},
    {"precision_multi", [] { return precision_multi(); }},
    {"recall_multi micro",
     [] { return recall_multi({.average = Average::micro}); }},
    {"f_beta_multi weighted",
     [] { return f_beta_multi(2, {.average = Average::weighted}); }},
    {"f1_multi", [] { return f1_multi(); }},
    {"jaccard_multi", [] { return jaccard_multi(); }},
    {"jaccard_multi micro",
     [] { return jaccard_multi({.average = Average::micro}); }},
    {"mse", [] { return mse(); }},
    {"mae", [] { return mae(); }},
    {"rmse", [] { return rmse(); }},
    {"r2_score", [] { return r2_score(); }},
    {"explained_variance", [] { return explained_variance(); }},
    {"pearson_corrcoef", [] { return pearson_corrcoef(); }},
    {"spearman_corrcoef", [] { return spearman_corrcoef(); }},
    {"psnr", [] { return psnr(); }},
    {"ssim", [] { return ssim(); }}};

struct Set {
  std::string metric;
  torch::Tensor outputs, targets;
  double expected;

  explicit Set(const nlohmann::json& json)
      : metric(json["metric"]),
        outputs(torch::tensor(
                    json["outputs"].get<std::vector<double>>(),
                    torch::kDouble)
                    .view(json["shape"].get<std::vector<int64_t>>())),
        targets(torch::tensor(
                    json["targets"].get<std::vector<double>>(),
                    torch::kDouble)
                    .view(json["target_shape"].get<std::vector<int64_t>>())),
        expected(
            json["expected"].is_null() ? std::nan("")
                                       : json["expected"].get<double>()) {
    if (targets.dim() == 1) targets = targets.to(torch::kLong);
  }
};

// What scikit-learn and scikit-image said, on TERN_METRICS's 1,000 sets or some
// that lie here.
std::vector<Set> all_sets() {
  const char* const live = std::getenv("TERN_METRICS");
  const auto json = nlohmann::json::parse(std::ifstream(
      live ? live : in_tests_folder("learner/metrics/metrics_fixture.json")));
  return {json.begin(), json.end()};
}

void expect_value(const Metric& metric, const Set& set) {
  const double value = metric.compute().item<double>();
  if (std::isnan(set.expected)) {
    EXPECT_TRUE(std::isnan(value)) << set.metric << " " << value;
  } else {
    EXPECT_NEAR(
        value,
        set.expected,
        1e-12 * std::max(1., std::abs(set.expected)))
        << set.metric;
  }
}

TEST(MetricsParity, AreThoseOfScikitLearnOverUnevenBatches) {
  for (const Set& set : all_sets()) {
    Metric metric = kMetrics.at(set.metric)();
    const int64_t size = 7, samples = set.outputs.size(0);
    for (int64_t i = 0; i < samples; i += size) {
      const int64_t end = std::min(i + size, samples);
      metric.update(
          {set.outputs.slice(0, i, end)},
          {set.targets.slice(0, i, end)});
    }
    expect_value(metric, set);
  }
}

// A sum over threads, each of which is a rank.
class Ranks {
 public:
  explicit Ranks(int64_t count) : barrier_(count), count_(count) {}

  AllReduce all_reduce(int64_t rank) {
    return {
        [this](const torch::Tensor& tensor) {
          {
            const std::lock_guard lock(mutex_);
            sum_ = sum_.defined() ? sum_ + tensor : tensor.clone();
          }
          barrier_.arrive_and_wait();
          tensor.copy_(sum_);
          barrier_.arrive_and_wait();
          if (std::this_thread::get_id() == first_) sum_.reset();
          barrier_.arrive_and_wait();
        },
        rank,
        count_};
  }
  void lead() { first_ = std::this_thread::get_id(); }

 private:
  std::barrier<> barrier_;
  std::mutex mutex_;
  torch::Tensor sum_;
  std::thread::id first_;
  int64_t count_;
};

// One of them no batch, so that it does not know how many classes there are.
TEST(MetricsParity, AreThatOfAllRanksWhateverEachHasSeen) {
  constexpr int64_t kRanks = 4, kWithout = 1;
  std::map<std::string, bool> done;
  for (const Set& set : all_sets()) {
    const int64_t samples = set.outputs.size(0);
    if (samples + 1 < kRanks || std::exchange(done[set.metric], true)) continue;
    Ranks ranks(kRanks);
    ranks.lead();
    std::vector<Metric> metrics;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const int64_t begin = rank == 0 ? 0 : samples - kRanks + rank;
      const int64_t end = samples - kRanks + rank + (rank == 0 ? 2 : 1);
      metrics.push_back(kMetrics.at(set.metric)());
      if (rank == kWithout) continue;
      metrics.back().update(
          {set.outputs.slice(0, begin, end)},
          {set.targets.slice(0, begin, end)});
    }
    for (int64_t rank = 1; rank < kRanks; ++rank) {
      threads.emplace_back(
          [&, rank] { metrics[rank].sync(ranks.all_reduce(rank)); });
    }
    metrics[0].sync(ranks.all_reduce(0));
    for (std::thread& thread : threads) thread.join();
    for (const Metric& metric : metrics) expect_value(metric, set);
  }
  EXPECT_GE(done.size(), 25U);
}

TEST(MetricsParity, OfRanksThatHaveAllSeenNothingAreNoNumbers) {
  for (const auto& [name, make] : kMetrics) {
    Metric metric = make();
    metric.sync(AllReduce([](const torch::Tensor&) {}));
    EXPECT_TRUE(std::isnan(metric.compute().item<double>())) << name;
  }
}

TEST(MetricsParity, CountTheClassThatTheLossIgnoresNowhere) {
  const auto outputs = torch::randn({20, 3}, torch::kDouble);
  const auto targets = torch::arange(20) % 3;
  const auto voids = torch::cat({targets, torch::full({5}, -100)});
  for (const char* name : {"roc_auc", "average_precision", "jaccard"}) {
    Metric right = kMetrics.at(name)(), own = kMetrics.at(name)();
    EXPECT_TRUE(own.counts_classes());
    right.update({outputs}, {targets});
    own.update(
        {torch::cat({outputs, torch::randn({5, 3}, torch::kDouble)})},
        {voids});
    EXPECT_EQ(right.compute().item<double>(), own.compute().item<double>());
  }
}

// Sorted or compared with a threshold, it would be some answer.
TEST(MetricsParity, ANaNAmongTheScoresIsNoAnswer) {
  std::map<std::string, bool> done;
  for (const Set& set : all_sets()) {
    if (std::exchange(done[set.metric], true)) continue;
    Metric metric = kMetrics.at(set.metric)();
    torch::Tensor broken = set.outputs.clone();
    broken.view(-1)[broken.numel() - 1] = std::nan("");
    const int64_t half = set.outputs.size(0) / 2;
    metric.update({broken.slice(0, half)}, {set.targets.slice(0, half)});
    if (half > 0) {
      metric.update(
          {broken.slice(0, 0, half)},
          {set.targets.slice(0, 0, half)});
    }
    EXPECT_TRUE(std::isnan(metric.compute().item<double>())) << set.metric;
    if (const auto state = metric.state_dict()) {
      Metric resumed = kMetrics.at(set.metric)();
      resumed.load_state_dict(*state);
      EXPECT_TRUE(std::isnan(resumed.compute().item<double>())) << set.metric;
    }
    metric.reset();
    metric.update({set.outputs}, {set.targets});
    expect_value(metric, set);
  }
}

// Of infinite scores softmax makes NaN, and among targets it has no rank.
TEST(MetricsParity, ScoresAndTargetsThatCannotBeRankedAreNoAnswer) {
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

TEST(MetricsParity, ANaNOnOneRankIsOneOnAll) {
  constexpr int64_t kRanks = 3;
  Ranks ranks(kRanks);
  ranks.lead();
  std::vector<Metric> metrics;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    torch::Tensor scores = torch::randn({4, 3});
    if (rank == 1) scores[2][0] = std::nan("");
    metrics.push_back(f1());
    if (rank == 2) continue;  // has seen nothing
    metrics.back().update({scores}, {torch::arange(4) % 3});
  }
  std::vector<std::thread> threads;
  for (int64_t rank = 1; rank < kRanks; ++rank) {
    threads.emplace_back(
        [&, rank] { metrics[rank].sync(ranks.all_reduce(rank)); });
  }
  metrics[0].sync(ranks.all_reduce(0));
  for (std::thread& thread : threads) thread.join();
  for (const Metric& metric : metrics) {
    EXPECT_TRUE(std::isnan(metric.compute().item<double>()));
  }
}

double value_of(
    const std::string& name,
    const torch::Tensor& outputs,
    const torch::Tensor& targets) {
  Metric metric = kMetrics.at(name)();
  metric.update({outputs}, {targets});
  return metric.compute().item<double>();
}

// Of each label those samples count for which it is known.
TEST(MetricsParity, LabelsThatAreNotKnownCountNowhere) {
  torch::manual_seed(5);
  constexpr int64_t kLabels = 3;
  const auto outputs = torch::randn({40, kLabels}, torch::kDouble);
  const auto truth = torch::randint(2, {40, kLabels}).to(torch::kDouble);
  const auto is_known = torch::rand({40, kLabels}) < 0.7;
  for (const double unknown : {-1.0, 255.0, std::nan("")}) {
    const auto targets =
        torch::where(is_known, truth, torch::full_like(truth, unknown));
    for (const char* name :
         {"roc_auc_multi",
          "average_precision_multi",
          "precision_multi",
          "f1_multi",
          "jaccard_multi"}) {
      double sum = 0;
      for (int64_t label = 0; label < kLabels; ++label) {
        const auto known = is_known.select(1, label);
        sum += value_of(
            name,
            outputs.select(1, label).index({known}).unsqueeze(1),
            truth.select(1, label).index({known}).unsqueeze(1));
      }
      EXPECT_DOUBLE_EQ(value_of(name, outputs, targets), sum / kLabels) << name;
    }
    const double wrong = ((outputs > 0) != (truth > 0.5))
                             .masked_select(is_known)
                             .to(torch::kDouble)
                             .mean()
                             .item<double>();
    EXPECT_DOUBLE_EQ(value_of("hamming_loss_multi", outputs, targets), wrong);
    Metric right = accuracy_multi();
    right.update({outputs}, {targets});
    EXPECT_DOUBLE_EQ(right.compute().item<double>(), 1 - wrong);
  }
}

// As label smoothing makes them.
TEST(MetricsParity, SoftLabelsCountAsTheNearerOne) {
  torch::manual_seed(6);
  const auto outputs = torch::randn({30, 4}, torch::kDouble);
  const auto truth = torch::randint(2, {30, 4}).to(torch::kDouble);
  const auto soft = truth * 0.4 + 0.3;
  for (const auto& [name, make] : kMetrics) {
    if (name.find("_multi") == std::string::npos) continue;
    EXPECT_EQ(value_of(name, outputs, soft), value_of(name, outputs, truth))
        << name;
  }
}

}  // namespace
}  // namespace tern::metrics_parity_test
