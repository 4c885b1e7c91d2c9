#include "tern/learner/optim/rebind.h"

#include <memory>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern::optim {

namespace {

using Replacements = std::unordered_map<c10::TensorImpl*, torch::Tensor>;

Replacements check_lists(
    const torch::optim::Optimizer& optimizer,
    const std::vector<torch::Tensor>& from,
    const std::vector<torch::Tensor>& to) {
  TORCH_CHECK_VALUE(
      from.size() == to.size(),
      fmt::format(
          "[rebind_parameters] {} old and {} new parameters; expected as many.",
          from.size(),
          to.size()));
  Replacements by_old;
  for (size_t i = 0; i < from.size(); ++i) {
    TORCH_CHECK_VALUE(
        from[i].sizes() == to[i].sizes(),
        fmt::format(
            "[rebind_parameters] parameter {} has shape [{}], its replacement "
            "[{}]; expected the same.",
            i,
            fmt::join(from[i].sizes(), ", "),
            fmt::join(to[i].sizes(), ", ")));
    const bool is_new =
        by_old.emplace(from[i].unsafeGetTensorImpl(), to[i]).second;
    TORCH_CHECK_VALUE(
        is_new,
        fmt::format(
            "[rebind_parameters] parameter {} is in the list twice; expected "
            "each once.",
            i));
  }
  size_t owned = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& param : group.params()) {
      owned += by_old.count(param.unsafeGetTensorImpl());
    }
  }
  TORCH_CHECK_VALUE(
      owned == from.size(),
      fmt::format(
          "[rebind_parameters] the optimizer owns {} of {} parameters; "
          "expected all. Add the missing ones with add_param_group() instead.",
          owned,
          from.size()));
  return by_old;
}

}  // namespace

void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const std::vector<torch::Tensor>& from,
    const std::vector<torch::Tensor>& to) {
  const Replacements by_old = check_lists(optimizer, from, to);
  auto& state = optimizer.state();
  // All are taken out before the first goes in: the lists may overlap.
  std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> moved;
  for (const torch::Tensor& param : from) {
    const auto found = state.find(param.unsafeGetTensorImpl());
    if (found == state.end()) {
      moved.push_back(nullptr);
      continue;
    }
    moved.push_back(std::move(found->second));
    state.erase(found);
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (moved[i]) state[to[i].unsafeGetTensorImpl()] = std::move(moved[i]);
  }
  for (auto& group : optimizer.param_groups()) {
    for (torch::Tensor& param : group.params()) {
      const auto found = by_old.find(param.unsafeGetTensorImpl());
      if (found != by_old.end()) param = found->second;
    }
  }
}

}  // namespace tern::optim
