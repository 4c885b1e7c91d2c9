#pragma once

#include <cstdint>
#include <string_view>

#include <opencv2/core/mat.hpp>
#include <torch/types.h>

namespace tern {

/// Converts an OpenCV image to 8 bits. 16-bit values are divided by 257, as
/// when reading image files.
/// \param where  Name of the caller, for error messages.
/// \throws c10::ValueError unless the image is gray, BGR or BGRA with 8 or 16
///         bits.
cv::Mat with_8_bits(const cv::Mat& image, std::string_view where);

/// Converts an image to the format that models expect: gray for 1 channel, RGB
/// for 3.
/// \param image   Gray, BGR or BGRA; with `is_rgb` gray or RGB.
cv::Mat with_channels(const cv::Mat& image, bool is_rgb, int64_t channels);

/// Returns a view of a gray or RGB image on the CPU.
/// \param image  [H, W] or [H, W, 1 or 3] kByte, contiguous.
/// \throws c10::ValueError for any other shape or dtype.
cv::Mat as_mat(const torch::Tensor& image, std::string_view where);

}  // namespace tern
