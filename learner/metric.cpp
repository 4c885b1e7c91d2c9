#include "tern/learner/metric.h"

#include <cmath>

#include <fmt/format.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr const char* kNanBatches = "nan_batches";

}  // namespace

torch::Tensor AllReduce::or_zeros(const torch::Tensor& own) const {
  constexpr int64_t kSizes = 64;  // LibTorch's limit for dimensions
  // For each rank: whether it has a tensor, and its device, dtype and sizes.
  const torch::Tensor kinds =
      torch::zeros({world_size_, 4 + kSizes}, torch::kLong);
  if (own.defined()) {
    std::vector<int64_t> kind = {
        1,
        static_cast<int64_t>(own.device().type()),
        static_cast<int64_t>(own.scalar_type()),
        own.dim()};
    kind.insert(kind.end(), own.sizes().begin(), own.sizes().end());
    kind.resize(4 + kSizes);
    kinds[rank_].copy_(torch::tensor(kind, torch::kLong));
  }
  add_up_(kinds);
  const auto rank = kinds.select(1, 0).argmax().item<int64_t>();
  const int64_t* const kind = kinds[rank].const_data_ptr<int64_t>();
  if (own.defined() || kind[0] == 0) return own;
  const auto type = static_cast<torch::DeviceType>(kind[1]);
  return torch::zeros(
      at::IntArrayRef(kind + 4, kind[3]),
      torch::TensorOptions(
          device_.type() == type ? device_ : torch::Device(type))
          .dtype(static_cast<torch::ScalarType>(kind[2])));
}

torch::Tensor AllReduce::gather(const torch::Tensor& own) const {
  torch::Tensor alike = or_zeros(own);
  if (!alike.defined()) return alike;
  const torch::Tensor rows = own.defined() ? own : alike.narrow(0, 0, 0);
  const torch::Tensor counts =
      torch::zeros({world_size_}, rows.options().dtype(torch::kLong));
  counts[rank_].fill_(rows.size(0));
  add_up_(counts);
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = counts.sum().item<int64_t>();
  torch::Tensor all = torch::zeros(sizes, rows.options());
  const int64_t first = counts.narrow(0, 0, rank_).sum().item<int64_t>();
  all.narrow(0, first, rows.size(0)).copy_(rows);
  add_up_(all);
  return all;
}

Metric Metric::fresh_copy() const {
  if (!copy_) return *this;
  Metric result = *this;
  result.impl_ = copy_(*impl_);
  result.reset();
  return result;
}

StateDict counted_state(const torch::Tensor& counts) {
  StateDict state;
  if (counts.defined()) state.insert("counts", counts);
  return state;
}

torch::Tensor counts_of_state(const StateDict& state) {
  const torch::Tensor* const counts = state.find("counts");
  return counts ? counts->clone() : torch::Tensor();
}

std::vector<double> read_numbers(const Tensors& numbers) {
  if (numbers.empty()) return {};
  torch::Device device = torch::kCPU;
  for (const torch::Tensor& number : numbers) {
    if (!number.is_cpu()) device = number.device();
  }
  Tensors there;
  for (const torch::Tensor& number : numbers) {
    const torch::Tensor exact = number.detach().to(torch::kDouble).reshape({});
    there.push_back(exact.device() == device ? exact : exact.to(device));
  }
  const torch::Tensor read = torch::stack(there).cpu();
  const double* const begin = read.const_data_ptr<double>();
  return {begin, begin + numbers.size()};
}

Tensors without_class(Tensors targets, int64_t ignore_index) {
  // A negative index is not a class anyway.
  if (ignore_index < 0 || targets.empty()) return targets;
  torch::Tensor& target = targets[0];
  if (c10::isIntegralType(target.scalar_type(), /*includeBool=*/false)) {
    target = target.to(torch::kLong).masked_fill(target == ignore_index, -100);
  }
  return targets;
}

torch::Tensor has_nan(const Tensors& outputs) {
  if (outputs.empty() || !outputs[0].defined()) return {};
  const torch::NoGradGuard no_grad;
  const torch::Tensor& output = outputs[0];
  // The maximum is NaN if any number is NaN, and is ten times as fast to
  // compute.
  const torch::Tensor nan = output.is_complex() || output.numel() == 0
                                ? output.isnan().any()
                                : output.max().isnan();
  return nan.to(torch::kFloat);
}

void Metric::update(
    const Tensors& outputs,
    const Tensors& targets,
    const torch::Tensor& has_nan) {
  TERN_CHECK_VALUE(
      !outputs.empty() && outputs[0].defined() && !targets.empty() &&
          targets[0].defined(),
      "[{}] {} outputs and {} targets; expected at least one defined tensor of "
      "each. Omit metrics for data without targets.",
      name(),
      outputs.size(),
      targets.size());
  const torch::NoGradGuard no_grad;
  impl_->update(
      outputs,
      counts_classes() ? without_class(targets, impl_->ignore_index())
                       : targets);
  torch::Tensor& batches = impl_->nan_batches_;
  // A copy, because `sync` sums in place and other metrics share the tensor.
  batches = batches.defined() ? batches + has_nan : has_nan.clone();
}

torch::Tensor Metric::compute() const {
  const torch::NoGradGuard no_grad;
  torch::Tensor value = impl_->compute();
  const torch::Tensor& batches = impl_->nan_batches_;
  if (!batches.defined()) return value;
  value = value.to(batches.device(), torch::kDouble);
  return torch::where(
      batches > 0,
      torch::full_like(value, std::nan("")),
      value);
}

void Metric::reset() {
  impl_->reset();
  impl_->nan_batches_.reset();
}

void Metric::sync(const AllReduce& all_reduce) {
  impl_->sync(all_reduce);
  torch::Tensor& batches = impl_->nan_batches_;
  batches = all_reduce.or_zeros(batches);
  if (batches.defined()) all_reduce(batches);
}

std::optional<StateDict> Metric::state_dict() const {
  std::optional<StateDict> state = impl_->state_dict();
  const torch::Tensor& batches = impl_->nan_batches_;
  if (state && batches.defined()) state->insert(kNanBatches, batches);
  return state;
}

void Metric::load_state_dict(const StateDict& state) {
  StateDict of_impl;
  impl_->nan_batches_.reset();
  for (const auto& entry : state) {
    if (entry.key() == kNanBatches) {
      impl_->nan_batches_ = entry.value().clone();
    } else {
      of_impl.insert(entry.key(), entry.value());
    }
  }
  impl_->load_state_dict(of_impl);
}

}  // namespace tern
