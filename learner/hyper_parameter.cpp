#include "tern/learner/hyper_parameter.h"

#include <optional>
#include <tuple>

#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace tern {

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

namespace tern::optim {

namespace {

using torch::optim::OptimizerOptions;

// Calls `visitor` with the first of `Types` that `options` is.
template <class... Types, class Visitor>
bool visit(OptimizerOptions& options, const Visitor& visitor) {
  const auto try_one = [&](auto* typed) {
    if (typed) visitor(*typed);
    return typed != nullptr;
  };
  return (try_one(dynamic_cast<Types*>(&options)) || ...);
}

// LibTorch's options overload one name for reading and writing.
template <class Visitor>
bool visit_momentum(OptimizerOptions& options, const Visitor& visitor) {
  using namespace torch::optim;
  const auto beta1 = [&visitor](auto& adam) {
    visitor(std::get<0>(adam.betas()));
  };
  return visit<SGDOptions, RMSpropOptions>(
             options,
             [&](auto& typed) { visitor(typed.momentum()); }) ||
         visit<AdamOptions, AdamWOptions>(options, beta1);
}

template <class Visitor>
bool visit_weight_decay(OptimizerOptions& options, const Visitor& visitor) {
  using namespace torch::optim;
  return visit<
      SGDOptions,
      AdamOptions,
      AdamWOptions,
      RMSpropOptions,
      AdagradOptions>(options, [&](auto& typed) {
    visitor(typed.weight_decay());
  });
}

// The visitors take mutable references; reading changes nothing.
OptimizerOptions& mutable_options(const OptimizerOptions& options) {
  return const_cast<OptimizerOptions&>(options);
}

}  // namespace

double momentum(const OptimizerOptions& options) {
  double result = 0;
  visit_momentum(mutable_options(options), [&](double& value) {
    result = value;
  });
  return result;
}

bool has_momentum(const OptimizerOptions& options) {
  return visit_momentum(mutable_options(options), [](double&) {});
}

void set_momentum(OptimizerOptions& options, double value) {
  TORCH_CHECK_VALUE(
      0 <= value && value < 1,
      fmt::format(
          "[set_momentum] momentum is {}; expected 0 <= momentum < 1.",
          value));
  const bool is_set =
      visit_momentum(options, [&](double& target) { target = value; });
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_set || value == 0,
      fmt::format(
          "[set_momentum] momentum {} for an optimizer that has none; expected "
          "SGD, RMSprop, Adam or AdamW. Ask has_momentum() first.",
          value));
}

double weight_decay(const OptimizerOptions& options) {
  double result = 0;
  visit_weight_decay(mutable_options(options), [&](double& value) {
    result = value;
  });
  return result;
}

bool has_weight_decay(const OptimizerOptions& options) {
  return visit_weight_decay(mutable_options(options), [](double&) {});
}

void set_weight_decay(OptimizerOptions& options, double value) {
  TORCH_CHECK_VALUE(
      value >= 0,
      fmt::format(
          "[set_weight_decay] weight_decay is {}; expected >= 0.",
          value));
  const bool is_set =
      visit_weight_decay(options, [&](double& target) { target = value; });
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_set || value == 0,
      fmt::format(
          "[set_weight_decay] weight_decay {} for an optimizer that has none; "
          "expected SGD, Adam, AdamW, RMSprop or Adagrad. Set "
          "LearnerOptions::weight_decay to 0, or ask has_weight_decay() "
          "first.",
          value));
}

}  // namespace tern::optim
