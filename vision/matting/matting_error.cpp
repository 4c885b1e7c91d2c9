#include "tern/vision/matting/matting_error.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

namespace tern {
namespace {

constexpr double kThousand = 1000;

void check(
    const char* name,
    const torch::Tensor& pha,
    const torch::Tensor& truth) {
  TORCH_CHECK_VALUE(
      pha.dim() == 4 && pha.size(1) == 1 && pha.sizes() == truth.sizes() &&
          pha.is_floating_point() && truth.is_floating_point(),
      fmt::format(
          "[{}] the alphas are [{}] {} and [{}] {}; expected two of [N, 1, H, "
          "W] floating.",
          name,
          fmt::join(pha.sizes(), ", "),
          c10::toString(pha.scalar_type()),
          fmt::join(truth.sizes(), ", "),
          c10::toString(truth.scalar_type())));
}

torch::Tensor sum_of_each(const torch::Tensor& x) {
  return x.sum({1, 2, 3}, /*keepdim=*/false, torch::kDouble);
}

/// From the smallest to the largest value, 0..1.
torch::Tensor stretched(const torch::Tensor& pha) {
  const torch::Tensor low = pha.amin({2, 3}, /*keepdim=*/true);
  const torch::Tensor range = pha.amax({2, 3}, /*keepdim=*/true) - low;
  return (pha - low) / range.clamp_min(1e-12);
}

/// The magnitude of the gradient of a smoothed alpha. The filter of a direction
/// is the product of a Gaussian and its derivative, each of norm 1.
torch::Tensor steepness(const torch::Tensor& pha) {
  constexpr double kSigma = 1.4;
  constexpr int64_t kReach = 4;  // where the Gaussian falls below 0.01
  const torch::Tensor at = torch::arange(-kReach, kReach + 1, torch::kDouble);
  torch::Tensor smooth = (at.square() / (-2 * kSigma * kSigma)).exp();
  torch::Tensor derive = at * smooth;
  smooth = (smooth / smooth.norm()).to(pha.options());
  derive = (derive / derive.norm()).to(pha.options());
  const torch::Tensor padded =
      torch::replication_pad2d(pha, {kReach, kReach, kReach, kReach});
  const auto filtered = [&](const torch::Tensor& down,
                            const torch::Tensor& across) {
    return torch::conv2d(
        torch::conv2d(padded, down.view({1, 1, -1, 1})),
        across.view({1, 1, 1, -1}));
  };
  return (filtered(smooth, derive).square() + filtered(derive, smooth).square())
      .sqrt();
}

/// The pixels of the largest region of `mask`, as 255; none for no region.
cv::Mat largest_region(const cv::Mat& mask) {
  cv::Mat labels, stats, centres;
  const int count = cv::connectedComponentsWithStats(
      mask,
      labels,
      stats,
      centres,
      /*connectivity=*/4);
  int largest = 0;
  for (int i = 1; i < count; ++i) {
    const auto area = [&](int label) {
      return stats.at<int>(label, cv::CC_STAT_AREA);
    };
    if (largest == 0 || area(i) > area(largest)) largest = i;
  }
  if (largest == 0) return cv::Mat::zeros(mask.size(), CV_8U);
  return labels == largest;
}

/// Of one picture, CV_32F.
double connectivity_error(const cv::Mat& pha, const cv::Mat& truth) {
  constexpr int kLevels = 10;
  constexpr float kTolerance = 0.15f;
  // The level up to which a pixel belongs to the region.
  cv::Mat level(pha.size(), CV_32F, cv::Scalar(1));
  cv::Mat is_open(pha.size(), CV_8U, cv::Scalar(255));
  for (int i = 1; i <= kLevels; ++i) {
    const double threshold = static_cast<float>(i) / kLevels;
    const cv::Mat both = (pha >= threshold) & (truth >= threshold);
    const cv::Mat leaves = is_open & ~largest_region(both);
    level.setTo(static_cast<float>(i - 1) / kLevels, leaves);
    is_open &= ~leaves;
  }
  double sum = 0;
  const auto distance = [&](const cv::Mat& alpha, int y, int x) {
    const float from = alpha.at<float>(y, x) - level.at<float>(y, x);
    return from >= kTolerance ? from : 0.f;
  };
  for (int y = 0; y < pha.rows; ++y) {
    for (int x = 0; x < pha.cols; ++x) {
      sum += std::fabs(distance(pha, y, x) - distance(truth, y, x));
    }
  }
  return sum;
}

}  // namespace

torch::Tensor alpha_sad(const torch::Tensor& pha, const torch::Tensor& truth) {
  check("alpha_sad", pha, truth);
  return sum_of_each((pha - truth).abs()) / kThousand;
}

torch::Tensor alpha_mse(const torch::Tensor& pha, const torch::Tensor& truth) {
  check("alpha_mse", pha, truth);
  return (pha - truth)
      .square()
      .mean(
          {1, 2, 3},
          /*keepdim=*/false,
          torch::kDouble);
}

torch::Tensor alpha_gradient_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth) {
  check("alpha_gradient_error", pha, truth);
  const auto steepness_of = [](const torch::Tensor& alpha) {
    return steepness(stretched(alpha.to(torch::kFloat)));
  };
  return sum_of_each((steepness_of(pha) - steepness_of(truth)).square()) /
         kThousand;
}

torch::Tensor alpha_connectivity_error(
    const torch::Tensor& pha,
    const torch::Tensor& truth) {
  check("alpha_connectivity_error", pha, truth);
  const auto on_host = [](const torch::Tensor& alpha) {
    return alpha.to(torch::kCPU, torch::kFloat).contiguous();
  };
  const torch::Tensor a = on_host(pha), b = on_host(truth);
  const auto picture = [](const torch::Tensor& alphas, int64_t i) {
    return cv::Mat(
        static_cast<int>(alphas.size(2)),
        static_cast<int>(alphas.size(3)),
        CV_32F,
        alphas[i].data_ptr<float>());
  };
  torch::Tensor errors = torch::empty({a.size(0)}, torch::kDouble);
  for (int64_t i = 0; i < a.size(0); ++i) {
    errors.mutable_data_ptr<double>()[i] =
        connectivity_error(picture(a, i), picture(b, i)) / kThousand;
  }
  return errors.to(pha.device());
}

std::vector<Metric> matting_metrics() {
  return {
      {"sad", alpha_sad, /*higher_is_better=*/false},
      {"mse", alpha_mse, false},
      {"grad", alpha_gradient_error, false},
      {"conn", alpha_connectivity_error, false}};
}

}  // namespace tern
