#include "tern/learner/metrics/regression.h"

#include <cmath>
#include <utility>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/kernels/check.h"
#include "tern/learner/metrics/mean_of.h"

namespace tern {

namespace {

SumAndCount squares(const torch::Tensor& difference) {
  return {difference.square().sum(), difference.numel()};
}

// The mean of a function of the differences, in kDouble.
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

// For each of the k columns, [k] kDouble: means, and sums of products of the
// deviations from the means, which are accurate even for large means.
struct Moments {
  double count = 0;
  torch::Tensor pred, target;  // means
  torch::Tensor pred_pred, pred_target, target_target;

  torch::Tensor error_error() const {
    return pred_pred - 2 * pred_target + target_target;
  }
  torch::Tensor spread_of_preds() const { return spread(pred_pred, pred); }
  torch::Tensor spread_of_targets() const {
    return spread(target_target, target);
  }

 private:
  // NaN if all numbers are equal, up to the rounding of their mean.
  torch::Tensor spread(const torch::Tensor& squares, const torch::Tensor& mean)
      const {
    constexpr double kRounding = 1e-14;
    return torch::where(
        squares > count * (kRounding * mean).square(),
        squares,
        torch::full_like(squares, std::nan("")));
  }
};

class MomentMetric final : public MetricImpl {
 public:
  using Formula = torch::Tensor (*)(const Moments&);
  MomentMetric(std::string name, Formula formula)
      : name_(std::move(name)), formula_(formula) {}

  std::string name() const override { return name_; }
  bool higher_is_better() const override { return true; }
  void reset() override { all_ = {}; }

  void update(const Tensors& outputs, const Tensors& targets) override {
    const torch::Tensor wanted = in_shape_of(name_, outputs[0], targets[0]);
    const auto columns = [](const torch::Tensor& t) {
      return (t.dim() > 1 ? t.flatten(1) : t.unsqueeze(-1)).to(torch::kDouble);
    };
    const torch::Tensor pred = columns(outputs[0]), target = columns(wanted);
    if (pred.size(0) == 0) return;
    Moments batch{
        .count = static_cast<double>(pred.size(0)),
        .pred = pred.mean(0),
        .target = target.mean(0)};
    const torch::Tensor p = pred - batch.pred, t = target - batch.target;
    batch.pred_pred = p.square().sum(0);
    batch.pred_target = (p * t).sum(0);
    batch.target_target = t.square().sum(0);
    all_ = all_.count == 0 ? batch : joined(all_, batch);
  }

  void sync(const AllReduce& all_reduce) override {
    torch::Tensor sums;
    if (all_.count > 0) {
      sums = torch::stack(
          {torch::full_like(all_.pred, all_.count),
           all_.pred * all_.count,
           all_.target * all_.count});
    }
    sums = all_reduce.or_zeros(sums);
    if (!sums.defined()) return;
    all_reduce(sums);
    const Moments common{
        .count = sums[0][0].item<double>(),
        .pred = sums[1] / sums[0],
        .target = sums[2] / sums[0]};
    torch::Tensor products = torch::zeros_like(sums);
    if (all_.count > 0) {
      const Moments own = moved(all_, common.pred, common.target);
      products =
          torch::stack({own.pred_pred, own.pred_target, own.target_target});
    }
    all_reduce(products);
    all_ = common;
    all_.pred_pred = products[0];
    all_.pred_target = products[1];
    all_.target_target = products[2];
  }

  std::optional<StateDict> state_dict() const override {
    if (all_.count == 0) return StateDict();
    return StateDict(
        {{"count", torch::scalar_tensor(all_.count, torch::kDouble)},
         {"pred", all_.pred},
         {"target", all_.target},
         {"pred_pred", all_.pred_pred},
         {"pred_target", all_.pred_target},
         {"target_target", all_.target_target}});
  }
  void load_state_dict(const StateDict& state) override {
    reset();
    if (state.is_empty()) return;
    all_ = {
        .count = state["count"].item<double>(),
        .pred = state["pred"].clone(),
        .target = state["target"].clone(),
        .pred_pred = state["pred_pred"].clone(),
        .pred_target = state["pred_target"].clone(),
        .target_target = state["target_target"].clone()};
  }

  torch::Tensor compute() const override {
    if (all_.count == 0) return torch::full({}, std::nan(""), torch::kDouble);
    return formula_(all_).mean();
  }

 private:
  // Moments about points other than the means.
  static Moments
  moved(Moments m, const torch::Tensor& pred, const torch::Tensor& target) {
    const torch::Tensor p = m.pred - pred, t = m.target - target;
    m.pred_pred = m.pred_pred + m.count * p * p;
    m.pred_target = m.pred_target + m.count * p * t;
    m.target_target = m.target_target + m.count * t * t;
    return m;
  }

  static Moments joined(const Moments& a, const Moments& b) {
    const double count = a.count + b.count;
    Moments sum{
        .count = count,
        .pred = a.pred + (b.pred - a.pred) * (b.count / count),
        .target = a.target + (b.target - a.target) * (b.count / count)};
    const Moments x = moved(a, sum.pred, sum.target);
    const Moments y = moved(b, sum.pred, sum.target);
    sum.pred_pred = x.pred_pred + y.pred_pred;
    sum.pred_target = x.pred_target + y.pred_target;
    sum.target_target = x.target_target + y.target_target;
    return sum;
  }

  std::string name_;
  Formula formula_;
  Moments all_;
};

}  // namespace

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

Metric r2_score() {
  return std::make_shared<MomentMetric>("r2_score", [](const Moments& m) {
    const torch::Tensor error =
        m.error_error() + m.count * (m.target - m.pred).square();
    return 1 - error / m.spread_of_targets();
  });
}

Metric explained_variance() {
  return std::make_shared<MomentMetric>(
      "explained_variance",
      [](const Moments& m) {
        return 1 - m.error_error() / m.spread_of_targets();
      });
}

Metric pearson_corrcoef() {
  return std::make_shared<MomentMetric>(
      "pearson_corrcoef",
      [](const Moments& m) {
        return m.pred_target /
               (m.spread_of_preds().sqrt() * m.spread_of_targets().sqrt());
      });
}

}  // namespace tern
