#include "tern/vision/decode/mat_pixels.h"

#include <opencv2/core/check.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

cv::Mat with_8_bits(const cv::Mat& image, std::string_view where) {
  TERN_CHECK_VALUE(
      !image.empty() && image.dims == 2 &&
          (image.depth() == CV_8U || image.depth() == CV_16U) &&
          (image.channels() == 1 || image.channels() == 3 ||
           image.channels() == 4),
      "[{}] the cv::Mat is {} x {} of {}; expected gray, BGR or BGRA with 8 or "
      "16 bits. Use cv::Mat::convertTo with the scale that maps white to 255.",
      where,
      image.rows,
      image.cols,
      cv::typeToString(image.type()));
  if (image.depth() == CV_8U) return image;
  cv::Mat bytes;
  image.convertTo(bytes, CV_8U, 1.0 / 257);
  return bytes;
}

cv::Mat with_channels(const cv::Mat& image, bool is_rgb, int64_t channels) {
  const bool is_gray = image.channels() == 1, has_alpha = image.channels() == 4;
  if (image.channels() == channels && (is_gray || is_rgb)) return image;
  const int code = channels == 1 ? (has_alpha ? cv::COLOR_BGRA2GRAY
                                    : is_rgb  ? cv::COLOR_RGB2GRAY
                                              : cv::COLOR_BGR2GRAY)
                   : is_gray     ? cv::COLOR_GRAY2RGB
                   : has_alpha   ? cv::COLOR_BGRA2RGB
                                 : cv::COLOR_BGR2RGB;
  cv::Mat converted;
  cv::cvtColor(image, converted, code);
  return converted;
}

cv::Mat as_mat(const torch::Tensor& image, std::string_view where) {
  TERN_CHECK_VALUE(
      image.defined() && image.scalar_type() == torch::kByte &&
          image.numel() > 0 &&
          (image.dim() == 2 ||
           (image.dim() == 3 && (image.size(2) == 1 || image.size(2) == 3))),
      "[{}] the image is {}; expected [H, W] or [H, W, 1 or 3] kByte.",
      where,
      shapes_of({image}));
  const bool is_rgb = image.dim() == 3 && image.size(2) == 3;
  return {
      static_cast<int>(image.size(0)),
      static_cast<int>(image.size(1)),
      is_rgb ? CV_8UC3 : CV_8UC1,
      image.data_ptr()};
}

}  // namespace tern
