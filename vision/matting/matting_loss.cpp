#include "tern/vision/matting/matting_loss.h"

#include <cmath>

#include <fmt/ranges.h>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

bool is_picture(const torch::Tensor& tensor, int64_t channels) {
  return tensor.dim() == 4 && tensor.size(1) == channels &&
         tensor.is_floating_point();
}

/// \param channels  Channels of each output that the loss uses.
/// \param full      Number of outputs that have the size of the targets.
void check(
    const char* name,
    const Tensors& outputs,
    const Tensors& targets,
    const std::vector<int64_t>& channels,
    size_t full) {
  bool fits = outputs.size() >= channels.size() && targets.size() == 2 &&
              is_picture(targets[0], 1) && is_picture(targets[1], 3);
  for (size_t i = 0; fits && i < channels.size(); ++i) {
    fits = is_picture(outputs[i], channels[i]) &&
           (i >= full ||
            outputs[i].sizes() == targets[channels[i] == 1 ? 0 : 1].sizes());
  }
  TERN_CHECK_VALUE(
      fits,
      "[{}] the outputs are {} and the targets {}; expected images of {} "
      "channels, the first {} with the size of the targets, and as targets "
      "alpha [N, 1, H, W] and foreground [N, 3, H, W]. Use matting_data, and "
      "the network that the loss is for.",
      name,
      shapes_of(outputs),
      shapes_of(targets),
      fmt::join(channels, ", "),
      full);
}

torch::Tensor resized(const torch::Tensor& x, const torch::Tensor& like) {
  return torch::upsample_bilinear2d(
      x,
      {like.size(2), like.size(3)},
      /*align_corners=*/false);
}

/// Loss of alpha, of its gradient, and of the foreground where alpha is not 0.
torch::Tensor picture_loss(
    const torch::Tensor& pha,
    const torch::Tensor& fgr,
    const torch::Tensor& true_pha,
    const torch::Tensor& true_fgr) {
  const torch::Tensor mask = true_pha != 0;
  return torch::l1_loss(pha, true_pha) +
         torch::l1_loss(sobel(pha), sobel(true_pha)) +
         torch::l1_loss(fgr * mask, true_fgr * mask);
}

constexpr double kThousand = 1000;

void check(
    const char* name,
    const torch::Tensor& pha,
    const torch::Tensor& truth) {
  TERN_CHECK_VALUE(
      pha.dim() == 4 && pha.size(1) == 1 && pha.sizes() == truth.sizes() &&
          pha.is_floating_point() && truth.is_floating_point(),
      "[{}] the alphas are {}; expected two of [N, 1, H, W] floating-point.",
      name,
      shapes_of({pha, truth}));
}

torch::Tensor sum_of_each(const torch::Tensor& x) {
  return x.sum({1, 2, 3}, /*keepdim=*/false, torch::kDouble);
}

/// Stretches the values of each alpha to 0..1.
torch::Tensor stretched(const torch::Tensor& pha) {
  const torch::Tensor low = pha.amin({2, 3}, /*keepdim=*/true);
  const torch::Tensor range = pha.amax({2, 3}, /*keepdim=*/true) - low;
  return (pha - low) / range.clamp_min(1e-12);
}

/// Returns the gradient magnitude of a smoothed alpha. The filter for each
/// direction is the product of a Gaussian and a Gaussian's derivative, each
/// with norm 1.
torch::Tensor steepness(const torch::Tensor& pha) {
  constexpr double kSigma = 1.4;
  constexpr int64_t kReach = 4;  // beyond it the Gaussian is below 0.01
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

/// Returns a mask of the largest region of `mask`, 255 inside; 0 everywhere if
/// there are no regions.
cv::Mat largest_region(const cv::Mat& mask) {
  cv::Mat labels, stats, centers;
  const int count = cv::connectedComponentsWithStats(
      mask,
      labels,
      stats,
      centers,
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

/// Connectivity error of one image, CV_32F.
double connectivity_error(const cv::Mat& pha, const cv::Mat& truth) {
  constexpr int kLevels = 10;
  constexpr float kTolerance = 0.15f;
  // Highest level at which the pixel is connected to the region.
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

torch::Tensor matting_base_loss(
    const Tensors& outputs,
    const Tensors& targets) {
  check("matting_base_loss", outputs, targets, {1, 3, 1}, 3);
  const torch::Tensor &pha = outputs[0], &true_pha = targets[0];
  return picture_loss(pha, outputs[1], true_pha, targets[1]) +
         torch::mse_loss(outputs[2], (pha.detach() - true_pha).abs());
}

torch::Tensor matting_refine_loss(
    const Tensors& outputs,
    const Tensors& targets) {
  check("matting_refine_loss", outputs, targets, {1, 3, 1, 3, 1}, 2);
  const torch::Tensor &true_pha = targets[0], &true_fgr = targets[1];
  const torch::Tensor &pha_sm = outputs[2], &fgr_sm = outputs[3];
  // Unlike in the base loss, gradients of the error term reach alpha too.
  const torch::Tensor error = (resized(pha_sm, true_pha) - true_pha).abs();
  return picture_loss(outputs[0], outputs[1], true_pha, true_fgr) +
         picture_loss(
             pha_sm,
             fgr_sm,
             resized(true_pha, pha_sm),
             resized(true_fgr, fgr_sm)) +
         torch::mse_loss(resized(outputs[4], true_pha), error);
}

// Adds shifted images instead of a convolution, which autocast would compute in
// 16 bits.
torch::Tensor sobel(const torch::Tensor& x) {
  TERN_CHECK_VALUE(
      x.dim() == 4 && x.is_floating_point(),
      "[sobel] x is {}; expected [N, C, H, W] floating-point.",
      shapes_of({x}));
  const torch::Tensor padded = torch::replication_pad2d(x, {1, 1, 1, 1});
  const auto shifted = [&](const torch::Tensor& t, int64_t dim, int64_t by) {
    return t.slice(dim, by, by + x.size(dim));
  };
  const auto smooth = [&](int64_t dim) {
    return shifted(padded, dim, 0) + 2 * shifted(padded, dim, 1) +
           shifted(padded, dim, 2);
  };
  const auto difference = [&](int64_t dim, const torch::Tensor& t) {
    return (shifted(t, dim, 2) - shifted(t, dim, 0)) / 8;
  };
  const torch::Tensor gx = difference(3, smooth(2));
  const torch::Tensor gy = difference(2, smooth(3));
  return (gx.square() + gy.square() + 1e-6).sqrt();
}

torch::Tensor alpha_sad(const torch::Tensor& pha, const torch::Tensor& truth) {
  check("alpha_sad", pha, truth);
  return sum_of_each((pha - truth).abs()) / kThousand;
}

torch::Tensor alpha_mse(const torch::Tensor& pha, const torch::Tensor& truth) {
  check("alpha_mse", pha, truth);
  const torch::Tensor squares = (pha - truth).square();
  return squares.mean({1, 2, 3}, /*keepdim=*/false, torch::kDouble);
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
