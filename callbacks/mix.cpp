#include "tern/callbacks/mix.h"

#include <cmath>
#include <random>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/only_one.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

torch::Tensor draw_partners(int64_t size, SampleRng& rng) {
  torch::Tensor partners = torch::arange(size);
  auto* const p = partners.mutable_data_ptr<int64_t>();
  for (int64_t i = size - 1; i > 0; --i) {
    std::swap(p[i], p[rng.below(static_cast<uint64_t>(i) + 1)]);
  }
  return partners;
}

}  // namespace

torch::Tensor Mix::send(const torch::Tensor& host, torch::Device device) {
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true)
                          : host.to(device);
}

Mix::Mix(const char* name, double alpha, uint64_t seed)
    : alpha_(alpha), seed_(seed) {
  TORCH_CHECK_VALUE(
      std::isfinite(alpha) && alpha > 0,
      fmt::format(
          "[{}] alpha is {}; expected a finite number > 0.",
          name,
          alpha));
}

void Mix::on_add(Learner& learn) {
  check_only_one<Mix>(learn, *this, "mix the batch twice");
}

// Two gamma variates: x / (x + y). Both are 0 where alpha is tiny, and then
// the distribution is a coin.
double Mix::draw_beta(SampleRng& rng) const {
  std::gamma_distribution<double> gamma(alpha_);
  const double x = gamma(rng), y = gamma(rng);
  return x + y > 0 ? x / (x + y) : static_cast<double>(rng() & 1);
}

void Mix::on_batch_begin(Learner& learn) {
  TrainState& state = learn.state();
  if (!state.training) return;
  Batch& batch = state.batch_data;
  SampleRng rng(
      seed_ ? seed_ : learn.options().seed,
      state.iteration,
      /*sample=*/0);
  const torch::Device device = batch.inputs.at(0).device();
  partners_ = send(draw_partners(batch.size(), rng), device);
  lambdas_ = mix(batch.inputs, partners_, rng);
  Tensors partner_targets;
  bool has_classes = false;
  for (torch::Tensor& target : batch.targets) {
    torch::Tensor partner = target.index_select(0, partners_);
    if (target.is_floating_point()) {
      std::vector<int64_t> shape(target.dim(), 1);
      shape[0] = -1;
      target = torch::lerp(
          partner,
          target,
          lambdas_.to(target.scalar_type()).view(shape));
    } else {
      has_classes = true;
    }
    partner_targets.push_back(std::move(partner));
  }
  if (!has_classes) return;
  const Loss& given = learn.options().loss;
  TORCH_CHECK_VALUE(
      !given || given.has_per_sample(),
      fmt::format(
          "[{}] the loss gives one number for the whole batch, so two targets "
          "cannot be mixed in it; expected a loss module of LibTorch, or "
          "Loss::mean_of(values).",
          name()));
  state.batch_loss = Loss([this, &learn, partner_targets](
                              const Tensors& outputs,
                              const Tensors& targets) {
    const Loss& loss = learn.options().loss;
    const torch::Tensor own = loss.per_sample(outputs, targets);
    const torch::Tensor partners = loss.per_sample(outputs, partner_targets);
    return torch::lerp(partners, own, lambdas_.to(own.scalar_type())).mean();
  });
}

}  // namespace tern
