#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tern {

/// Learning rates for the layer groups of a model, in fastai's ways:
///
///   3e-3              every group the same
///   {1e-5, 1e-3}      a slice: first group 1e-5, last 1e-3, geometric between
///   {1e-5, 1e-4, 1e-3} with three groups: one each
///   {}                the Learner's own, every group the same
///   LearningRates::per_group({...})   one each, also for two groups
///   LearningRates::up_to(1e-3)        last group 1e-3, the others 1e-4
class LearningRates {
 public:
  LearningRates() = default;
  LearningRates(double lr) : rates_{lr} {}  // NOLINT: implicit on purpose
  LearningRates(std::initializer_list<double> rates)  // NOLINT
      : rates_(rates), is_slice_(rates.size() == 2) {}
  static LearningRates per_group(std::vector<double> rates);
  static LearningRates up_to(double last);

  bool empty() const { return rates_.empty(); }

  /// One rate for each of `groups` groups.
  /// \throws c10::ValueError when a rate is negative or not finite, or when
  ///         their number fits no form above.
  std::vector<double> resolve(int64_t groups, double default_lr) const;

 private:
  std::vector<double> rates_;
  bool is_slice_ = false;
  bool is_up_to_ = false;
};

}  // namespace tern
