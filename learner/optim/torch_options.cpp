// Hyperparameters that schedules change, for every optimizer of LibTorch.

#include <tuple>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tern/kernels/check.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/optim/sgd.h"

namespace tern::optim {

namespace {

using torch::optim::OptimizerOptions;

// Calls `get` with the options as the first matching type of `Types`; null if
// none matches.
template <class... Types, class Get>
double* find(const OptimizerOptions& options, const Get& get) {
  // LibTorch's options overload one name for reading and writing.
  auto& writable = const_cast<OptimizerOptions&>(options);
  double* found = nullptr;
  const auto try_one = [&](auto* typed) {
    return typed && (found = get(*typed));
  };
  (try_one(dynamic_cast<Types*>(&writable)) || ...);
  return found;
}

double* find_momentum(const OptimizerOptions& options) {
  using namespace torch::optim;
  const auto momentum = [](auto& typed) { return &typed.momentum(); };
  const auto beta1 = [](auto& adam) { return &std::get<0>(adam.betas()); };
  double* const found =
      find<SGDOptions, RMSpropOptions, LarcOptions>(options, momentum);
  return found ? found : find<AdamOptions, AdamWOptions>(options, beta1);
}

double* find_weight_decay(const OptimizerOptions& options) {
  using namespace torch::optim;
  return find<
      SGDOptions,
      AdamOptions,
      AdamWOptions,
      RMSpropOptions,
      AdagradOptions,
      LarcOptions>(options, [](auto& typed) { return &typed.weight_decay(); });
}

// Sets `found` to `value`, whose range was already checked.
void set(double* found, double value, const char* name, const char* cure) {
  if (found) *found = value;
  TORCH_CHECK_NOT_IMPLEMENTED(
      found || value == 0,
      fmt::format(
          "[set_{0}] {0} {1} for an optimizer without {0}; expected {2}.",
          name,
          value,
          cure));
}

}  // namespace

double momentum(const OptimizerOptions& options) {
  const double* const found = find_momentum(options);
  return found ? *found : 0;
}

bool has_momentum(const OptimizerOptions& options) {
  return find_momentum(options) != nullptr;
}

void set_momentum(OptimizerOptions& options, double value) {
  TERN_CHECK_VALUE(
      0 <= value && value < 1,
      "[set_momentum] momentum is {}; expected 0 <= momentum < 1.",
      value);
  set(find_momentum(options),
      value,
      "momentum",
      "SGD, RMSprop, Adam or AdamW. Check has_momentum() first");
}

double weight_decay(const OptimizerOptions& options) {
  const double* const found = find_weight_decay(options);
  return found ? *found : 0;
}

void set_weight_decay(OptimizerOptions& options, double value) {
  TERN_CHECK_VALUE(
      value >= 0,
      "[set_weight_decay] weight_decay is {}; expected >= 0.",
      value);
  set(find_weight_decay(options),
      value,
      "weight_decay",
      "SGD, Adam, AdamW, RMSprop or Adagrad. Set LearnerOptions::weight_decay "
      "to 0");
}

}  // namespace tern::optim
