#include "tern/vision/opencv_pixels.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <opencv2/core/check.hpp>

namespace tern {

cv::Mat with_8_bits(const cv::Mat& image, std::string_view where) {
  TORCH_CHECK_VALUE(
      !image.empty() && image.dims == 2 &&
          (image.depth() == CV_8U || image.depth() == CV_16U) &&
          (image.channels() == 1 || image.channels() == 3 ||
           image.channels() == 4),
      fmt::format(
          "[{}] the cv::Mat is {} x {} of {}; expected grey, BGR or BGRA with "
          "8 or 16 bits. Use cv::Mat::convertTo with the scale that takes "
          "white to 255.",
          where,
          image.rows,
          image.cols,
          cv::typeToString(image.type())));
  if (image.depth() == CV_8U) return image;
  cv::Mat bytes;
  image.convertTo(bytes, CV_8U, 1.0 / 257);
  return bytes;
}

}  // namespace tern
