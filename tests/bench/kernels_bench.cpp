// Compares the kernels with LibTorch's operations. Exit code 1 if a goal is
// missed.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>
#include <fmt/format.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/support/memory.h"
#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/kernels/optim/unscale_and_check.h"
#include "tern/kernels/parallel_for.h"
#include "tern/kernels/winograd.h"
#include "tern/tests/bench/measure.h"

namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

using tern::bench::measure;
using tern::bench::report;
using tern::bench::report_times;

/// 62 tensors with 4.2 million elements: the convolutions and normalization
/// layers of a small residual network.
std::vector<std::vector<int64_t>> network_shapes() {
  std::vector<std::vector<int64_t>> shapes =
      {{64, 3, 7, 7}, {64}, {64}, {1000, 256}, {1000}};
  for (int block = 0; block < 4; ++block) {
    for (const int64_t c : {64, 128, 256}) {
      if (shapes.size() + 5 > 62) {
        break;
      }
      const int64_t kernel = c == 256 && block > 0 ? 1 : 3;
      shapes.insert(
          shapes.end(),
          {{c, c, kernel, kernel}, {c}, {c}, {c, c, 3, 3}, {c}});
    }
  }
  while (shapes.size() < 62) {
    shapes.push_back({128});
  }
  return shapes;
}

Tensors map(
    const Tensors& list,
    const std::function<Tensor(const Tensor&)>& f) {
  Tensors out;
  for (const Tensor& tensor : list) {
    out.push_back(f(tensor));
  }
  return out;
}

struct Network {
  Tensors params, grads, exp_avgs, exp_avg_sqs, steps;
  int64_t size = 0;

  Network() {
    torch::manual_seed(0);
    for (const auto& shape : network_shapes()) {
      params.push_back(torch::randn(shape));
      size += params.back().numel();
    }
    grads = map(params, [](const Tensor& p) { return torch::randn_like(p); });
    exp_avgs =
        map(params, [](const Tensor& p) { return torch::zeros_like(p); });
    exp_avg_sqs =
        map(params, [](const Tensor& p) { return torch::zeros_like(p); });
    steps = map(params, [](const Tensor&) { return torch::zeros({}); });
  }

  /// Empty without Lookahead.
  Tensors& slow_weights(const tern::FusedAdamArgs& args) {
    if (slow_.empty() && args.lookahead.k > 0) {
      slow_ = map(params, [](const Tensor& p) { return p.clone(); });
    }
    return slow_;
  }

 private:
  Tensors slow_;
};

const tern::FusedAdamArgs kAdamW{
    .lr = 1e-3,
    .weight_decay = 1e-2,
    .decoupled_weight_decay = true};

/// memcpy of `bytes` bytes on all LibTorch threads.
struct PlainCopy {
  std::vector<char> from, to;
  explicit PlainCopy(int64_t bytes) : from(bytes, 1), to(bytes, 2) {}

  void operator()() {
    const auto bytes = static_cast<int64_t>(from.size());
    tern::parallel_for(
        0,
        bytes,
        int64_t{1} << 16,
        [&](int64_t begin, int64_t end) {
          std::memcpy(to.data() + begin, from.data() + begin, end - begin);
        });
  }
};

bool adamw_vs_torch_optim() {
  Network net;
  Tensors theirs = map(net.params, [](const Tensor& p) {
    return p.clone().requires_grad_();
  });
  for (size_t i = 0; i < theirs.size(); ++i) {
    theirs[i].mutable_grad() = net.grads[i].clone();
  }
  torch::optim::AdamW optimizer(
      theirs,
      torch::optim::AdamWOptions(1e-3).weight_decay(1e-2));
  const auto m = measure(
      [&] {
        tern::fused_adam_(
            {net.params, net.grads, {}, net.steps},
            net.exp_avgs,
            net.exp_avg_sqs,
            {},
            kAdamW);
      },
      [&] { optimizer.step(); });
  fmt::print(
      "({} tensors, {:.2f} M parameters, {} threads)\n",
      net.params.size(),
      static_cast<double>(net.size) * 1e-6,
      at::get_num_threads());
  return report_times("fused_adamw_vs_torch_optim", m, 3);
}

bool adamw_vs_fused_adamw() {
  Network ours, theirs;
  const auto m = measure(
      [&] {
        tern::fused_adam_(
            {ours.params, ours.grads, {}, ours.steps},
            ours.exp_avgs,
            ours.exp_avg_sqs,
            {},
            kAdamW);
      },
      [&] {
        for (Tensor& step : theirs.steps) {
          step.add_(1);
        }
        at::_fused_adamw_(
            theirs.params,
            theirs.grads,
            theirs.exp_avgs,
            theirs.exp_avg_sqs,
            {},
            theirs.steps,
            1e-3,
            0.9,
            0.999,
            1e-2,
            1e-8,
            /*amsgrad=*/false,
            /*maximize=*/false);
      });
  return report_times("fused_adamw_vs__fused_adamw_", m, 1);
}

/// fastai's optimizers compared with the same in ATen operations, one tensor at
/// a time as in fastai.
bool fastai_vs_aten(
    const std::string& name,
    const std::function<void(Network&)>& fused,
    const std::function<void(Network&, size_t)>& of_one_tensor,
    double goal = 3) {
  Network ours, theirs;
  const torch::NoGradGuard no_grad;
  const auto m = measure(
      [&] { fused(ours); },
      [&] {
        for (size_t i = 0; i < theirs.params.size(); ++i) {
          of_one_tensor(theirs, i);
        }
      });
  return report_times(name + "_vs_aten", m, goal);
}

void move_moments(Network& net, size_t i) {
  const Tensor& grad = net.grads[i];
  net.params[i].mul_(1 - 1e-5);
  net.exp_avgs[i].mul_(0.9).add_(grad, 0.1);
  net.exp_avg_sqs[i].mul_(0.99).addcmul_(grad, grad, 0.01);
}

bool fastai_optimizers_vs_aten() {
  const tern::FusedAdamArgs adam = {
      .lr = 1e-3,
      .beta2 = 0.99,
      .eps = 1e-5,
      .weight_decay = 1e-2,
      .decoupled_weight_decay = true};
  const auto fused_adam = [](const tern::FusedAdamArgs& args) {
    return [args](Network& net) {
      tern::fused_adam_(
          {net.params, net.grads, {}, net.steps, net.slow_weights(args)},
          net.exp_avgs,
          net.exp_avg_sqs,
          {},
          args);
    };
  };
  const auto radam_step = [](Network& net, size_t i) {
    move_moments(net, i);
    const Tensor denom = (net.exp_avg_sqs[i] / 0.1).sqrt().add_(1e-5);
    net.params[i].addcdiv_(net.exp_avgs[i], denom, -1e-3);
  };
  auto radam = adam, ranger = adam, lamb = adam;
  radam.rectified = ranger.rectified = lamb.trust_ratio = true;
  ranger.lookahead.k = 6;
  bool all_met = fastai_vs_aten("radam", fused_adam(radam), radam_step);
  int64_t steps = 0;
  all_met &=
      fastai_vs_aten("ranger", fused_adam(ranger), [&](Network& net, size_t i) {
        radam_step(net, i);
        if (i == 0) ++steps;
        if (steps % 6 != 0) return;
        Tensor& slow = net.slow_weights(ranger)[i];
        slow.add_(net.params[i] - slow, 0.5);
        net.params[i].copy_(slow);
      });
  all_met &=
      fastai_vs_aten("lamb", fused_adam(lamb), [](Network& net, size_t i) {
        move_moments(net, i);
        const Tensor r1 = net.params[i].pow(2).mean().sqrt();
        const Tensor step = (net.exp_avgs[i] / 0.1) /
                            ((net.exp_avg_sqs[i] / 0.1).sqrt() + 1e-5);
        const Tensor r2 = step.pow(2).mean().sqrt();
        const auto ratio = r1.item<double>() / r2.item<double>();
        net.params[i].add_(step, -1e-3 * std::min(ratio, 10.0));
      });
  const tern::FusedSgdArgs larc = {
      .lr = 1e-3,
      .momentum = 0.9,
      .weight_decay = 1e-2,
      .decoupled_weight_decay = true,
      .trust_coeff = 0.02};
  all_met &= fastai_vs_aten(
      "larc",
      [&](Network& net) {
        tern::fused_sgd_(
            {net.params, net.grads, {}, net.steps},
            net.exp_avgs,
            larc);
      },
      [](Network& net, size_t i) {
        net.params[i].mul_(1 - 1e-5);
        net.exp_avgs[i].mul_(0.9).add_(net.grads[i]);
        const auto norm = net.params[i].norm().item<double>();
        const auto of_grad = net.grads[i].norm().item<double>();
        const double lr = 2e-5 * norm / (of_grad + norm * 1e-2 + 1e-8);
        net.params[i].add_(net.exp_avgs[i], -std::min(1e-3, lr));
      },
      // Both are memory-bound: ATen moves 12 floats per element, Larc 7.
      1.7);
  return all_met;
}

/// Compares `ours`, which moves `bytes` bytes, with a copy that moves as many
/// (half read, half written).
bool vs_copy(
    const std::string& name,
    int64_t bytes,
    double goal,
    const std::function<void()>& ours) {
  PlainCopy copy(bytes / 2);
  const auto m = measure(ours, [&] { copy(); });
  const auto rate = [&](double time) {
    return fmt::format("{:.1f} GB/s", static_cast<double>(bytes) / time * 1e-9);
  };
  return report(name, rate(m.ours), rate(m.theirs), m.ratio, goal);
}

bool master_form_vs_copy() {
  Network net;
  const auto to_bf16 = [](const Tensor& t) { return t.to(torch::kBFloat16); };
  const Tensors grads = map(net.grads, to_bf16);
  const Tensors weights = map(net.params, to_bf16);
  const Tensor scale = torch::tensor(65536.0f), found = torch::zeros({});
  return vs_copy("adamw_masters_bf16_vs_copy", 28 * net.size, 0.8, [&] {
    tern::fused_adam_(
        {net.params, grads, weights, net.steps},
        net.exp_avgs,
        net.exp_avg_sqs,
        {},
        kAdamW,
        {scale, found});
  });
}

bool sgd_masters_vs_copy() {
  Network net;
  const auto to_half = [](const Tensor& t) { return t.to(torch::kHalf); };
  const Tensors grads = map(net.grads, to_half);
  const Tensors weights = map(net.params, to_half);
  return vs_copy("sgd_masters_half_vs_copy", 20 * net.size, 0.8, [&] {
    tern::fused_sgd_(
        {net.params, grads, weights, net.steps},
        net.exp_avgs,
        {.lr = 1e-3, .momentum = 0.9});
  });
}

bool unscale_vs_aten() {
  Network ours, theirs;
  Tensor found = torch::zeros({}), their_found = torch::zeros({});
  // Not 1, for which nothing is written; its powers stay finite over all
  // rounds.
  const Tensor scale = torch::tensor(0.999f);
  const auto m = measure(
      [&] { tern::unscale_and_check_(ours.grads, scale, found); },
      [&] {
        at::_amp_foreach_non_finite_check_and_unscale_(
            theirs.grads,
            their_found,
            scale);
      });
  return report_times("unscale_vs__amp_foreach", m, 1);
}

bool normalize_vs_aten() {
  const Tensor images = torch::randint(0, 256, {16, 224, 224, 3}, torch::kByte);
  const std::vector<double> mean = {0.485, 0.456, 0.406};
  const std::vector<double> stddev = {0.229, 0.224, 0.225};
  const Tensor mean_row = torch::tensor({0.485f, 0.456f, 0.406f});
  const Tensor stddev_row = torch::tensor({0.229f, 0.224f, 0.225f});
  const auto m = measure(
      [&] { tern::normalize_images(images, mean, stddev); },
      [&] {
        images.to(torch::kFloat)
            .div_(255)
            .sub_(mean_row)
            .div_(stddev_row)
            .permute({0, 3, 1, 2});
      });
  return report_times("normalize_images_vs_aten", m, 2);
}

/// The 3 x 3 convolutions of a ResNet, compared with oneDNN's with packed
/// weights.
bool winograd_vs_onednn() {
  tern::keep_freed_memory();  // as Predictor does on a CPU
  const auto onednn = c10::Dispatcher::singleton().findSchemaOrThrow(
      "mkldnn::_convolution_pointwise",
      "");
  const std::vector<int64_t> one = {1, 1};
  bool all_met = true;
  for (const int64_t count : {1, 16}) {
    for (const int64_t side : {56, 28, 14}) {
      const int64_t channels = int64_t{64} * 56 / side;
      const std::vector<int64_t> sizes = {count, channels, side, side};
      const Tensor images =
          torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
      const Tensor weight = torch::randn({channels, channels, 3, 3});
      const Tensor bias = torch::randn({channels});
      const Tensor own = tern::winograd_weight(weight, sizes, one);
      const Tensor packed = at::mkldnn_reorder_conv2d_weight(
          weight.to_mkldnn(),
          one,
          one,
          one,
          1,
          at::IntArrayRef(sizes));
      const auto m = measure(
          [&] {
            tern::winograd_conv2d(images, own, bias, one, {}, /*relu=*/true);
          },
          [&] {
            torch::jit::Stack stack = {
                images,
                packed,
                bias,
                one,
                one,
                one,
                1,
                std::string("relu"),
                c10::List<std::optional<at::Scalar>>(),
                c10::IValue()};
            onednn.callBoxed(stack);
          });
      all_met &= report_times(
          fmt::format("winograd_{}x{}px_{}_vs_onednn", count, side, channels),
          m,
          1.5);
    }
  }
  return all_met;
}

}  // namespace

int main(int argc, char** argv) {
  tern::bench::read_arguments(argc, argv);
  bool all_met = adamw_vs_torch_optim();
  all_met &= adamw_vs_fused_adamw();
  all_met &= fastai_optimizers_vs_aten();
  all_met &= master_form_vs_copy();
  all_met &= sgd_masters_vs_copy();
  all_met &= unscale_vs_aten();
  all_met &= normalize_vs_aten();
  const torch::NoGradGuard no_grad;
  all_met &= winograd_vs_onednn();
  return all_met ? 0 : 1;
}
