#include "tern/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tern/data/random.h"

namespace tern {

namespace {

// A sample number that no data set has: the key of the order itself.
constexpr int64_t kOrderKey = -1;

}  // namespace

std::vector<int64_t> SequentialSampler::indices(uint64_t, int64_t) const {
  std::vector<int64_t> order(size_);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> RandomSampler::indices(uint64_t seed, int64_t epoch)
    const {
  std::vector<int64_t> order(size_);
  std::iota(order.begin(), order.end(), int64_t{0});
  SampleRng rng(seed, epoch, kOrderKey);
  for (int64_t i = size_ - 1; i > 0; --i) {
    std::swap(order[i], order[rng.below(i + 1)]);
  }
  return order;
}

WeightedSampler::WeightedSampler(
    const std::vector<double>& weights,
    int64_t num_samples)
    : num_samples_(
          num_samples ? num_samples : static_cast<int64_t>(weights.size())) {
  TORCH_CHECK_VALUE(
      num_samples >= 0,
      fmt::format(
          "[WeightedSampler] num_samples is {}; expected 0 or more.",
          num_samples));
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    TORCH_CHECK_VALUE(
        std::isfinite(weights[i]) && weights[i] >= 0,
        fmt::format(
            "[WeightedSampler] weights[{}] is {}; expected a finite number "
            ">= 0.",
            i,
            weights[i]));
    cumulative_.push_back(sum += weights[i]);
  }
  TORCH_CHECK_VALUE(
      sum > 0,
      "[WeightedSampler] all weights are 0 or there is none; expected at least "
      "one above 0.");
}

std::vector<int64_t> WeightedSampler::indices(uint64_t seed, int64_t epoch)
    const {
  std::vector<int64_t> order(num_samples_);
  SampleRng rng(seed, epoch, kOrderKey);
  for (int64_t& index : order) {
    const double unit =
        (rng() * 0x1p-32 + rng()) * 0x1p-32;  // 53 bits are enough of these 64
    const auto at = std::upper_bound(
        cumulative_.begin(),
        cumulative_.end() - 1,
        unit * cumulative_.back());
    index = at - cumulative_.begin();
  }
  return order;
}

}  // namespace tern
