#include "tern/callbacks/callback_checks.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"

namespace tern {

void check_at_least(
    const char* where,
    const char* name,
    double value,
    double least) {
  TERN_CHECK_VALUE(
      value >= least,
      "[{}] {} is {}; expected a number >= {}.",
      where,
      name,
      value,
      least);
}

void check_positive(const char* where, const char* name, double value) {
  TERN_CHECK_VALUE(
      std::isfinite(value) && value > 0,
      "[{}] {} is {}; expected a finite number > 0.",
      where,
      name,
      value);
}

void check_not_fitting(const Learner& learn, const char* where) {
  TORCH_CHECK(
      !parts_of(learn).state.is_fitting,
      fmt::format(
          "[{}] this cannot be called while fit runs; call it before or after.",
          where));
}

void check_sets_alone(const Learner& learn, const Callback& callback) {
  const auto sets = [](const Callback& c, HyperParameter hyper) {
    const auto* setter = dynamic_cast<const SetsHyperParameter*>(&c);
    return setter && setter->sets(hyper);
  };
  using enum HyperParameter;
  for (const HyperParameter hyper : {lr, momentum, weight_decay}) {
    for (const auto& other : learn.callbacks()) {
      TERN_CHECK_VALUE(
          !sets(*other, hyper) || !sets(callback, hyper),
          "[Learner::add] {} and {} both set the {} and would overwrite each "
          "other; remove one of them, or use a fit with a constant value.",
          other->name(),
          callback.name(),
          hyper == lr ? "learning rate" : to_string(hyper));
    }
  }
}

void check_only_one(
    const std::shared_ptr<Callback>& other,
    const Callback& callback,
    const char* why) {
  TERN_CHECK_VALUE(
      !other || other.get() == &callback,
      "[Learner::add] {} and {} would {}; remove one of them.",
      other ? other->name() : "",
      callback.name(),
      why);
}

std::string broken_tensor(
    const std::vector<ModelTensor>& parameters,
    const std::vector<ModelTensor>& buffers) {
  const torch::NoGradGuard no_grad;
  std::vector<std::string> names;
  Tensors are_good;
  const auto add = [&](const ModelTensor& tensor, const torch::Tensor& good) {
    names.push_back(tensor.name);
    are_good.push_back(
        are_good.empty() ? good : good.to(are_good.front().device()));
  };
  for (const ModelTensor& p : parameters) add(p, p.tensor.isfinite().all());
  for (const ModelTensor& b : buffers) add(b, ~b.tensor.isnan().any());
  if (names.empty()) return "";
  const torch::Tensor read = torch::stack(are_good).cpu();
  const bool* const good = read.const_data_ptr<bool>();
  const auto at = std::find(good, good + names.size(), false) - good;
  return at < std::ssize(names) ? names[at] : "";
}

const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name) {
  const torch::Tensor* value = state.find(name);
  TERN_CHECK_VALUE(
      value,
      "[{0}] the saved state has no \"{1}\"; expected the state of a {0}. "
      "Resume with the callbacks that the checkpoint was written with.",
      owner,
      name);
  return *value;
}

std::vector<double> saved_numbers(
    const std::string& owner,
    const StateDict& state,
    const std::string& name) {
  const torch::Tensor values =
      saved_value(owner, state, name).to(torch::kCPU, torch::kDouble);
  const double* const data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

}  // namespace tern
