#include "tern/learner/metrics/class_numbers.h"

#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern {

namespace {

std::string shape(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

std::vector<int64_t> sizes_without(const torch::Tensor& tensor, int64_t dim) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  return sizes;
}

// Where `pred` has its classes, when the rest is the shape of `target`.
std::optional<int64_t> class_dim(
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  if (pred.dim() != target.dim() + 1 || pred.dim() < 2) return std::nullopt;
  for (const int64_t dim : {int64_t{1}, pred.dim() - 1}) {
    if (target.sizes() == sizes_without(pred, dim)) return dim;
  }
  return std::nullopt;
}

// Targets of [N, 1] beside scores of [N, C] mean [N].
torch::Tensor without_channel(
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  const bool has_channel = target.dim() == pred.dim() && target.dim() >= 2 &&
                           target.size(1) == 1 && pred.size(1) != 1;
  return has_channel ? target.squeeze(1) : target;
}

void check_class_type(const std::string& metric, const torch::Tensor& target) {
  TORCH_CHECK_VALUE(
      !target.is_floating_point() && !target.is_complex(),
      fmt::format(
          "[{}] targets {} are {}; expected class numbers. Use "
          "target.argmax(1) for one-hot targets, accuracy_multi() for several "
          "labels a sample.",
          metric,
          shape(target),
          c10::toString(target.scalar_type())));
}

torch::Tensor at_least_float(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kDouble ? tensor
                                                : tensor.to(torch::kFloat);
}

}  // namespace

ClassScores class_scores(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  check_class_type(metric, target);
  const torch::Tensor classes = without_channel(pred, target);
  const std::optional<int64_t> dim = class_dim(pred, classes);
  TORCH_CHECK_VALUE(
      dim,
      fmt::format(
          "[{}] outputs have shape {}, targets {}; expected [N, C, ...] and "
          "[N, ...]. Give one score a class and one class number a sample.",
          metric,
          shape(pred),
          shape(target)));
  return {
      at_least_float(pred).movedim(*dim, -1).reshape({-1, pred.size(*dim)}),
      classes.reshape(-1).to(torch::kLong)};
}

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
  const ClassScores lined_up = class_scores(metric, pred, target);
  return {
      lined_up.scores.argmax(-1),
      lined_up.targets,
      lined_up.scores.size(-1)};
}

}  // namespace tern
