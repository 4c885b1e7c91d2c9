#include "tern/learner/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "tern/kernels/check.h"
#include "tern/learner/metrics/mean_metric.h"

namespace tern {

namespace {

// ---- A classifier's outputs and targets, lined up ----

std::string shape(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

// Where `pred` has its classes, when the rest is the shape of `target`.
std::optional<int64_t> class_dim(
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  if (pred.dim() != target.dim() + 1 || pred.dim() < 2) return std::nullopt;
  for (const int64_t dim : {int64_t{1}, pred.dim() - 1}) {
    const torch::Tensor last = pred.movedim(dim, -1);
    if (target.sizes() == last.sizes().slice(0, target.dim())) return dim;
  }
  return std::nullopt;
}

void check_class_type(const std::string& metric, const torch::Tensor& target) {
  TERN_CHECK_VALUE(
      !target.is_floating_point() && !target.is_complex(),
      "[{}] targets {} are {}; expected class numbers. Use target.argmax(1) "
      "for one-hot targets, accuracy_multi() for several labels a sample.",
      metric,
      shape(target),
      c10::toString(target.scalar_type()));
}

struct ClassScores {
  torch::Tensor scores;   // [M, C], kFloat or kDouble
  torch::Tensor targets;  // [M] kLong
};

// `pred` is [N, C, ...] as for cross-entropy, or [N, ..., C] as in fastai;
// `target` [N, ...] or [N, 1], integers or bools.
ClassScores class_scores(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  check_class_type(metric, target);
  const bool has_channel = target.dim() == pred.dim() && target.dim() >= 2 &&
                           target.size(1) == 1 && pred.size(1) != 1;
  const torch::Tensor classes = has_channel ? target.squeeze(1) : target;
  const std::optional<int64_t> dim = class_dim(pred, classes);
  TERN_CHECK_VALUE(
      dim,
      "[{}] outputs have shape {}, targets {}; expected [N, C, ...] and "
      "[N, ...]. Give one score a class and one class number a sample.",
      metric,
      shape(pred),
      shape(target));
  const bool is_double = pred.scalar_type() == torch::kDouble;
  return {
      pred.to(is_double ? torch::kDouble : torch::kFloat)
          .movedim(*dim, -1)
          .reshape({-1, pred.size(*dim)}),
      classes.reshape(-1).to(torch::kLong)};
}

struct ClassNumbers {
  torch::Tensor pred, target;  // [M] kLong
  int64_t classes;
};

// The likeliest class of every target. One channel alone (or none) holds the
// logits of a binary classifier: class 1 where it is > 0.
ClassNumbers class_numbers(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  const bool is_binary =
      pred.numel() == target.numel() &&
      (pred.sizes() == target.sizes() ||
       (pred.dim() == target.dim() + 1 && pred.size(1) == 1));
  if (is_binary) {
    check_class_type(metric, target);
    return {
        (pred.reshape(-1) > 0).to(torch::kLong),
        target.reshape(-1).to(torch::kLong),
        2};
  }
  const auto [scores, targets] = class_scores(metric, pred, target);
  return {scores.argmax(-1), targets, scores.size(-1)};
}

// What is no class of the model, such as a void pixel's, counts nowhere.
torch::Tensor is_class(const torch::Tensor& targets, int64_t classes) {
  return (targets >= 0).logical_and_(targets < classes);
}

// ---- Means ----

// Both 0-dim and on the device.
struct SumAndCount {
  SumAndCount(torch::Tensor sum, torch::Tensor count)
      : sum(std::move(sum)), count(std::move(count)) {}
  SumAndCount(const torch::Tensor& sum, int64_t count)
      : sum(sum), count(torch::full_like(sum, count)) {}
  torch::Tensor sum, count;
};

class MeanOf : public MeanMetric {
 public:
  using Function = std::function<
      SumAndCount(const torch::Tensor& pred, const torch::Tensor& target)>;

  MeanOf(std::string name, bool higher_is_better, Function count)
      : MeanMetric(std::move(name), higher_is_better),
        count_(std::move(count)) {}

  void update(const Tensors& outputs, const Tensors& targets) override {
    const auto [sum, count] = count_(outputs[0], targets[0]);
    add(sum, count);
  }

 private:
  Function count_;
};

class MeanOfClasses final : public MeanOf {
 public:
  using MeanOf::MeanOf;
  bool counts_classes() const override { return true; }
};

Metric accuracy_or_errors(const char* name, bool counts_errors) {
  const auto count = [=](const torch::Tensor& pred,
                         const torch::Tensor& target) -> SumAndCount {
    const ClassNumbers batch = class_numbers(name, pred, target);
    const torch::Tensor known = is_class(batch.target, batch.classes).sum();
    const torch::Tensor hits = (batch.pred == batch.target).sum();
    return {counts_errors ? known - hits : hits, known};
  };
  return std::make_shared<MeanOfClasses>(name, !counts_errors, count);
}

SumAndCount squares(const torch::Tensor& difference) {
  return {difference.square().sum(), difference.numel()};
}

// Of the differences between predictions and targets, in kDouble.
template <class Mean = MeanOf, class Error>
Metric mean_error(const char* name, Error error) {
  const auto count = [=](const torch::Tensor& pred,
                         const torch::Tensor& target) {
    const torch::Tensor wanted = in_shape_of(name, pred, target);
    return error(pred.to(torch::kDouble) - wanted.to(torch::kDouble));
  };
  return std::make_shared<Mean>(name, /*higher_is_better=*/false, count);
}

class RootMeanOf final : public MeanOf {
 public:
  using MeanOf::MeanOf;
  torch::Tensor compute() const override { return MeanOf::compute().sqrt(); }
};

// ---- From the confusion matrix ----

// By class: [C], or one entry for all in one pot.
struct Counts {
  torch::Tensor hits, predicted, actual;
};

Counts counts(const torch::Tensor& matrix, Average average) {
  Counts all{matrix.diagonal(), matrix.sum(0), matrix.sum(1)};
  if (average != Average::micro) return all;
  return {
      all.hits.sum().reshape(1),
      all.predicted.sum().reshape(1),
      all.actual.sum().reshape(1)};
}

// 0 / 0 is 0, as in scikit-learn.
torch::Tensor ratio(const torch::Tensor& over, const torch::Tensor& under) {
  return torch::where(under > 0, over / under, torch::zeros_like(over));
}

torch::Tensor averaged(
    const torch::Tensor& by_class,
    const torch::Tensor& actual,
    Average average) {
  if (average == Average::automatic) {
    average = by_class.size(0) == 2 ? Average::binary : Average::macro;
  }
  switch (average) {
    case Average::binary:
      return by_class[1];
    case Average::weighted:
      return ratio((by_class * actual).sum(), actual.sum());
    default:
      return by_class.mean();
  }
}

// beta2 is the square of beta: 0 gives precision, infinity recall.
Metric from_beta(std::string name, double beta2, Average average) {
  const auto formula = [beta2, average, name](const torch::Tensor& matrix) {
    TERN_CHECK_VALUE(
        average != Average::binary || matrix.size(0) == 2,
        "[{}] Average::binary with {} classes; expected 2. Use Average::macro.",
        name,
        matrix.size(0));
    const Counts all = counts(matrix, average);
    const torch::Tensor by_class =
        std::isinf(beta2)
            ? ratio(all.hits, all.actual)
            : ratio((1 + beta2) * all.hits, beta2 * all.actual + all.predicted);
    return averaged(by_class, all.actual, average);
  };
  return std::make_shared<ConfusionMetric>(std::move(name), formula);
}

torch::Tensor dice_of(const torch::Tensor& matrix) {
  const Counts all = counts(matrix, Average::macro);
  const torch::Tensor size = all.predicted + all.actual;
  if (matrix.size(0) == 2) {
    return torch::where(
        size[1] > 0,
        2 * all.hits[1] / size[1],
        torch::ones_like(size[1]));
  }
  const torch::Tensor comes_up = (size > 0).to(torch::kDouble);
  const torch::Tensor classes = comes_up.sum();
  return torch::where(
      classes > 0,
      ratio(2 * all.hits, size).sum() / classes,
      torch::ones_like(classes));
}

}  // namespace

Metric accuracy() {
  return accuracy_or_errors("accuracy", false);
}

Metric error_rate() {
  return accuracy_or_errors("error_rate", true);
}

Metric top_k_accuracy(int64_t k) {
  TERN_CHECK_VALUE(k >= 1, "[top_k_accuracy] k is {}; expected >= 1.", k);
  const std::string name = fmt::format("top_{}_accuracy", k);
  const auto count = [=](const torch::Tensor& pred,
                         const torch::Tensor& target) -> SumAndCount {
    const auto [scores, targets] = class_scores(name, pred, target);
    TERN_CHECK_VALUE(
        scores.size(-1) >= k,
        "[{}] the model has {} classes; expected at least {}. Take a "
        "smaller k.",
        name,
        scores.size(-1),
        k);
    const torch::Tensor best = std::get<1>(scores.topk(k, -1));
    const torch::Tensor hits = best == targets.unsqueeze(-1);
    return {hits.sum(), is_class(targets, scores.size(-1)).sum()};
  };
  return std::make_shared<MeanOfClasses>(name, true, count);
}

Metric accuracy_multi(double threshold, bool sigmoid) {
  TERN_CHECK_VALUE(
      0 <= threshold && threshold <= 1,
      "[accuracy_multi] threshold is {}; expected 0..1, a probability.",
      threshold);
  const auto count = [=](const torch::Tensor& outputs,
                         const torch::Tensor& targets) -> SumAndCount {
    const torch::Tensor target =
        in_shape_of("accuracy_multi", outputs, targets);
    torch::Tensor pred = outputs.to(torch::kFloat);
    if (sigmoid) pred = pred.sigmoid();
    const torch::Tensor hits = (pred > threshold) == target.to(torch::kBool);
    return {hits.sum(), hits.numel()};
  };
  return std::make_shared<MeanOf>("accuracy_multi", true, count);
}

Metric precision(Average average) {
  return from_beta("precision", 0, average);
}

Metric recall(Average average) {
  return from_beta("recall", std::numeric_limits<double>::infinity(), average);
}

Metric f_beta(double beta, Average average) {
  TERN_CHECK_VALUE(
      beta > 0 && std::isfinite(beta),
      "[f_beta] beta is {}; expected a finite number > 0.",
      beta);
  return from_beta(fmt::format("f{:g}", beta), beta * beta, average);
}

Metric f1(Average average) {
  return f_beta(1, average);
}

Metric dice() {
  return std::make_shared<ConfusionMetric>("dice", dice_of);
}

ConfusionMetric::ConfusionMetric(std::string name, Formula formula)
    : name_(std::move(name)), formula_(std::move(formula)) {}

void ConfusionMetric::update(const Tensors& outputs, const Tensors& targets) {
  const auto [pred, target, classes] =
      class_numbers(name_, outputs[0], targets[0]);
  if (!counts_.defined()) {
    counts_ = torch::zeros({classes, classes}, target.options());
  }
  TERN_CHECK_VALUE(
      counts_.size(0) == classes,
      "[{}] this batch has {} classes, the ones before had {}; expected "
      "one number. Call reset() between models.",
      name_,
      classes,
      counts_.size(0));
  // bincount would wait for the device to learn the largest class.
  const torch::Tensor cell = target.clamp(0, classes - 1) * classes + pred;
  const torch::Tensor counts = is_class(target, classes).to(torch::kLong);
  counts_.view(-1).scatter_add_(0, cell, counts);
}

void ConfusionMetric::sync(const AllReduce& all_reduce) {
  TERN_CHECK_VALUE(
      counts_.defined(),
      "[{}] this process has seen no batch, so that it knows no classes; "
      "use fewer processes or more data.",
      name_);
  all_reduce(counts_);
}

torch::Tensor ConfusionMetric::compute() const {
  if (!counts_.defined()) return torch::full({}, std::nan(""), torch::kDouble);
  return formula_(counts_.to(torch::kDouble));
}

Metric mse() {
  return mean_error("mse", squares);
}

Metric mae() {
  return mean_error("mae", [](const torch::Tensor& difference) -> SumAndCount {
    return {difference.abs().sum(), difference.numel()};
  });
}

Metric rmse() {
  return mean_error<RootMeanOf>("rmse", squares);
}

}  // namespace tern
