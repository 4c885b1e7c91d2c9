#include "tern/learner/hyper_parameter.h"

#include <cmath>

#include "tern/kernels/check.h"

namespace tern {

LearningRates LearningRates::per_group(std::vector<double> rates) {
  LearningRates result;
  result.rates_ = std::move(rates);
  return result;
}

LearningRates LearningRates::up_to(double last) {
  LearningRates result(last);
  result.is_up_to_ = true;
  return result;
}

std::vector<double> LearningRates::resolve(int64_t groups, double default_lr)
    const {
  std::vector<double> rates = rates_;
  if (rates.empty()) {
    rates.assign(groups, default_lr);
  } else if (is_up_to_) {
    rates.assign(groups, rates_[0] / 10);
    rates.back() = rates_[0];
  } else if (rates.size() == 1) {
    rates.assign(groups, rates_[0]);
  } else if (is_slice_) {
    rates.assign(groups, rates_[1]);
    for (int64_t i = 0; i + 1 < groups; ++i) {
      const double part = static_cast<double>(i) / (groups - 1);
      rates[i] = rates_[0] * std::pow(rates_[1] / rates_[0], part);
    }
  }
  TERN_CHECK_VALUE(
      static_cast<int64_t>(rates.size()) == groups,
      "[LearningRates] got {} learning rates for {} layer groups; expected one "
      "for all, a slice {{first, last}}, or one per group.",
      rates.size(),
      groups);
  for (const double rate : rates) {
    TERN_CHECK_VALUE(
        std::isfinite(rate) && rate >= 0,
        "[LearningRates] a learning rate is {}; expected a finite number >= 0 "
        "(and > 0 in a slice).",
        rate);
  }
  return rates;
}

std::string to_string(HyperParameter hyper) {
  switch (hyper) {
    case HyperParameter::lr:
      return "lr";
    case HyperParameter::momentum:
      return "momentum";
    case HyperParameter::weight_decay:
      return "weight_decay";
  }
  return "";
}

}  // namespace tern
