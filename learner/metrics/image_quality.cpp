#include "tern/learner/metrics/image_quality.h"

#include <cmath>

#include <torch/nn/functional/conv.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/metrics/mean_of.h"

namespace tern {

namespace {

constexpr int64_t kRadius = 5;
constexpr double kSigma = 1.5, kK1 = 0.01, kK2 = 0.03;

void check_images(
    const char* metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t least) {
  TERN_CHECK_VALUE(
      pred.dim() == 4 && pred.sizes() == target.sizes() &&
          pred.size(2) >= least && pred.size(3) >= least,
      "[{}] outputs are {}, targets {}; expected images [N, C, H, W] of the "
      "same shape, with H and W at least {}.",
      metric,
      shapes_of({pred}),
      shapes_of({target}),
      least);
}

// \param of  Maps (prediction, target), kDouble, to a value per image: [N].
template <class F>
Metric
mean_of_images(const char* name, double data_range, int64_t least, F of) {
  TERN_CHECK_VALUE(
      data_range > 0 && std::isfinite(data_range),
      "[{}] data_range is {}; expected a finite number > 0, such as 1 or 255.",
      name,
      data_range);
  const auto count = [=](const torch::Tensor& pred,
                         const torch::Tensor& target) -> SumAndCount {
    check_images(name, pred, target, least);
    return {
        of(pred.to(torch::kDouble), target.to(torch::kDouble)).sum(),
        pred.size(0)};
  };
  return std::make_shared<MeanOf>(name, /*higher_is_better=*/true, count);
}

// Blurs rows, then columns, of [N, C, H, W], at all positions at which the
// window is inside the image.
torch::Tensor blurred(const torch::Tensor& images) {
  const torch::Tensor at =
      torch::arange(-kRadius, kRadius + 1, images.options());
  torch::Tensor window = (-0.5 * (at / kSigma).square()).exp();
  window = window / window.sum();
  const int64_t size = 2 * kRadius + 1;
  torch::Tensor x = images.flatten(0, 1).unsqueeze(1);
  x = torch::conv2d(x, window.view({1, 1, size, 1}));
  x = torch::conv2d(x, window.view({1, 1, 1, size}));
  return x.view({images.size(0), images.size(1), x.size(2), x.size(3)});
}

}  // namespace

Metric psnr(double data_range) {
  return mean_of_images(
      "psnr",
      data_range,
      1,
      [=](const torch::Tensor& pred, const torch::Tensor& target) {
        const torch::Tensor mse = (pred - target).square().flatten(1).mean(1);
        return 10 * (data_range * data_range / mse).log10();
      });
}

Metric ssim(double data_range) {
  return mean_of_images(
      "ssim",
      data_range,
      2 * kRadius + 1,
      [=](const torch::Tensor& x, const torch::Tensor& y) {
        const double c1 = std::pow(kK1 * data_range, 2);
        const double c2 = std::pow(kK2 * data_range, 2);
        const torch::Tensor mx = blurred(x), my = blurred(y);
        const torch::Tensor vx = blurred(x * x) - mx * mx;
        const torch::Tensor vy = blurred(y * y) - my * my;
        const torch::Tensor vxy = blurred(x * y) - mx * my;
        const torch::Tensor map = ((2 * mx * my + c1) * (2 * vxy + c2)) /
                                  ((mx * mx + my * my + c1) * (vx + vy + c2));
        return map.flatten(1).mean(1);
      });
}

}  // namespace tern
