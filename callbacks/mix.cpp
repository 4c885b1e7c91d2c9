#include "tern/callbacks/mix.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
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

// Copies to the device without synchronizing.
torch::Tensor send(const torch::Tensor& host, torch::Device device) {
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true)
                          : host.to(device);
}

// Reshapes to [N, 1, ..., 1], to broadcast over `tensor`, in its dtype.
torch::Tensor per_sample(
    const torch::Tensor& values,
    const torch::Tensor& tensor) {
  std::vector<int64_t> shape(tensor.dim(), 1);
  shape[0] = -1;
  return values.to(tensor.scalar_type()).view(shape);
}

struct Range {
  int64_t begin, end;
};

// A range of `length` around a random center, cropped to 0..size.
Range draw_range(int64_t size, double length, SampleRng& rng) {
  const auto half = std::llround(static_cast<double>(size) * length) / 2;
  const auto center = std::llround(rng.uniform() * static_cast<double>(size));
  return {
      std::max<int64_t>(center - half, 0),
      std::min<int64_t>(center + half, size)};
}

}  // namespace

Mix::Mix(const char* name, double alpha, uint64_t seed)
    : alpha_(alpha), seed_(seed) {
  check_positive(name, "alpha", alpha);
}

void Mix::on_add(Learner& learn) {
  check_only_one(learn.find<Mix>(), *this, "mix the batch twice");
}

void Mix::on_train_begin(Learner& learn) {
  const auto& outputs = learn.data().outputs;
  const bool has_positions =
      learn.options().loss.targets_are_positions() ||
      std::ranges::any_of(outputs, [](const OutputInfo& output) {
        return output.kind == TargetKind::boxes ||
               output.kind == TargetKind::points;
      });
  TERN_CHECK_VALUE(
      !has_positions,
      "[{}] the targets are boxes or points, which cannot be mixed; expected "
      "classes, masks or regression targets. Omit {}.",
      name(),
      name());
}

// x / (x + y) of two gamma variates. If alpha is tiny, both can be 0; the
// distribution is then a coin toss.
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
  const torch::Tensor host_partners = draw_partners(batch.size(), rng);
  partners_ = send(host_partners, device);
  const torch::Tensor host_lambdas = mix(batch.inputs, partners_, rng);
  lambdas_ = send(host_lambdas, device);
  Tensors partner_targets;
  bool has_classes = false;
  for (torch::Tensor& target : batch.targets) {
    torch::Tensor partner = target.index_select(0, partners_);
    if (target.is_floating_point()) {
      // Mixed only once, since both losses use it.
      partner = torch::lerp(partner, target, per_sample(lambdas_, target));
      target = partner;
    } else {
      has_classes = true;
    }
    partner_targets.push_back(std::move(partner));
  }
  if (!has_classes) return;
  const Loss& given = learn.options().loss;
  TERN_CHECK_VALUE(
      !given || given.has_per_sample(),
      "[{}] the loss returns one number for the whole batch, so it cannot mix "
      "two targets per sample; expected a loss module of LibTorch, or "
      "Loss::mean_of(values).",
      name());
  // Captures no member, because the callback may be removed before the loss is
  // computed.
  const auto counts =
      [&learn,
       host_partners,
       host_lambdas,
       partners = partners_,
       lambdas = lambdas_](const Tensors& outputs, const Tensors& targets) {
        const torch::Tensor own = learn.options().loss.counts(outputs, targets);
        const bool is_on_host = own.is_cpu();
        return torch::lerp(
            own.index_select(0, is_on_host ? host_partners : partners),
            own,
            (is_on_host ? host_lambdas : lambdas).to(torch::kDouble));
      };
  state.batch_loss = Loss([&learn, partner_targets, counts, lambdas = lambdas_](
                              const Tensors& outputs,
                              const Tensors& targets) {
    const Loss& loss = learn.options().loss;
    const torch::Tensor own = loss.sum_per_sample(outputs, targets);
    const torch::Tensor partners =
        loss.sum_per_sample(outputs, partner_targets);
    return mean_over(
        torch::lerp(partners, own, lambdas.to(own.scalar_type())).sum(),
        counts(outputs, targets));
  });
  state.batch_loss.count_by(counts);
}

torch::Tensor
MixUp::mix(Tensors& inputs, const torch::Tensor& partners, SampleRng& rng) {
  torch::Tensor lambdas = torch::empty(partners.size(0));
  auto* const lambda = lambdas.mutable_data_ptr<float>();
  for (int64_t i = 0; i < lambdas.numel(); ++i) {
    const double drawn = draw_beta(rng);
    lambda[i] = static_cast<float>(std::max(drawn, 1 - drawn));
  }
  const torch::Tensor of_partners = send(1 - lambdas, partners.device());
  for (torch::Tensor& input : inputs) {
    if (!input.is_floating_point()) continue;
    // `input` must be the first argument, because it determines the result's
    // memory format.
    input = torch::lerp(
        input,
        input.index_select(0, partners),
        per_sample(of_partners, input));
  }
  return lambdas;
}

torch::Tensor
CutMix::mix(Tensors& inputs, const torch::Tensor& partners, SampleRng& rng) {
  torch::Tensor& images = inputs[0];
  TERN_CHECK_VALUE(
      images.is_floating_point() && images.dim() >= 3,
      "[CutMix] the first input is [{}] {}; expected floating-point images [N, "
      "..., H, W].",
      fmt::join(images.sizes(), ", "),
      c10::toString(images.scalar_type()));
  const int64_t height = images.size(-2), width = images.size(-1);
  const double side = std::sqrt(1 - draw_beta(rng));
  const Range x = draw_range(width, side, rng);
  const Range y = draw_range(height, side, rng);
  const auto box = [&](const torch::Tensor& tensor) {
    return tensor.slice(-2, y.begin, y.end).slice(-1, x.begin, x.end);
  };
  // Copied, because on a CPU the batch may be in the loader's memory.
  torch::Tensor mixed = images.clone();
  box(mixed).copy_(box(images).index_select(0, partners));
  images = mixed;
  const auto area = static_cast<double>((x.end - x.begin) * (y.end - y.begin));
  const double kept = 1 - area / static_cast<double>(width * height);
  return torch::full({partners.size(0)}, kept, torch::kFloat);
}

OptionValues Mix::option_values() const {
  return {{"alpha", option_text(alpha_)}, {"seed", option_text(seed_)}};
}

}  // namespace tern
