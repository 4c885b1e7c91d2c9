#include "tern/learner/loss_average.h"

#include <torch/types.h>

namespace tern {

CountedLoss mean_over_ranks(Communicator& ranks, const CountedLoss& own) {
  if (ranks.world_size() == 1) return own;
  const torch::Tensor sums = torch::tensor(
      {own.count > 0 ? own.loss * own.count : 0, own.count},
      torch::kDouble);
  ranks.all_reduce(sums);
  const auto* const all = sums.const_data_ptr<double>();
  return {all[0] / all[1], all[1]};
}

void LossAverage::add(const CountedLoss& batch) {
  if (!(batch.count > 0)) return;
  if (unit_ == 0) unit_ = batch.count;
  const double weight = batch.count / unit_;
  sum_ = kBeta * sum_ + (1 - kBeta) * weight * batch.loss;
  missing_ = kBeta * missing_ + (1 - kBeta) * (1 - weight);
  ++batches_;
}

void LossAverage::restore(
    double sum,
    int64_t batches,
    double missing,
    double unit) {
  sum_ = sum;
  batches_ = batches;
  missing_ = missing;
  unit_ = unit;
}

}  // namespace tern
