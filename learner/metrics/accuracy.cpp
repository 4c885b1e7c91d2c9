#include "tern/learner/metrics/accuracy.h"

#include <fmt/format.h>

#include "tern/learner/metrics/class_numbers.h"

namespace tern {

namespace {

// What is no class of the model, such as a void pixel's, counts nowhere.
torch::Tensor is_class(const torch::Tensor& targets, int64_t classes) {
  return (targets >= 0).logical_and_(targets < classes);
}

class Accuracy final : public MeanMetric {
 public:
  explicit Accuracy(bool count_errors)
      : MeanMetric(count_errors ? "error_rate" : "accuracy", !count_errors),
        count_errors_(count_errors) {}

  void update(const Tensors& outputs, const Tensors& targets) override {
    const ClassNumbers batch = class_numbers(name(), outputs[0], targets[0]);
    const torch::Tensor known = is_class(batch.target, batch.classes).sum();
    const torch::Tensor hits = (batch.pred == batch.target).sum();
    add(count_errors_ ? known - hits : hits, known);
  }

 private:
  bool count_errors_;
};

class TopKAccuracy final : public MeanMetric {
 public:
  explicit TopKAccuracy(int64_t k)
      : MeanMetric(fmt::format("top_{}_accuracy", k), true), k_(k) {
    TORCH_CHECK_VALUE(
        k >= 1,
        fmt::format("[top_k_accuracy] k is {}; expected >= 1.", k));
  }

  void update(const Tensors& outputs, const Tensors& targets) override {
    const ClassScores batch = class_scores(name(), outputs[0], targets[0]);
    TORCH_CHECK_VALUE(
        batch.scores.size(-1) >= k_,
        fmt::format(
            "[{}] the model has {} classes; expected at least {}. Take a "
            "smaller k.",
            name(),
            batch.scores.size(-1),
            k_));
    const torch::Tensor best = std::get<1>(batch.scores.topk(k_, -1));
    const torch::Tensor hits = best == batch.targets.unsqueeze(-1);
    add(hits.sum(), is_class(batch.targets, batch.scores.size(-1)).sum());
  }

 private:
  int64_t k_;
};

class AccuracyMulti final : public MeanMetric {
 public:
  AccuracyMulti(double threshold, bool sigmoid)
      : MeanMetric("accuracy_multi", true),
        threshold_(threshold),
        sigmoid_(sigmoid) {
    TORCH_CHECK_VALUE(
        0 <= threshold && threshold <= 1,
        fmt::format(
            "[accuracy_multi] threshold is {}; expected 0..1, a probability.",
            threshold));
  }

  void update(const Tensors& outputs, const Tensors& targets) override {
    const torch::Tensor target = in_shape_of(name(), outputs[0], targets[0]);
    torch::Tensor pred = outputs[0].to(torch::kFloat);
    if (sigmoid_) pred = pred.sigmoid();
    const torch::Tensor hits = (pred > threshold_) == target.to(torch::kBool);
    add(hits.sum(), hits.numel());
  }

 private:
  double threshold_;
  bool sigmoid_;
};

}  // namespace

Metric accuracy() {
  return std::make_shared<Accuracy>(false);
}

Metric error_rate() {
  return std::make_shared<Accuracy>(true);
}

Metric top_k_accuracy(int64_t k) {
  return std::make_shared<TopKAccuracy>(k);
}

Metric accuracy_multi(double threshold, bool sigmoid) {
  return std::make_shared<AccuracyMulti>(threshold, sigmoid);
}

}  // namespace tern
