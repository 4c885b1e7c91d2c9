#pragma once

#include <string_view>

#include <opencv2/core/mat.hpp>

namespace tern {

/// An image of OpenCV with 8 bits, its colours as they are; 16 bits are divided
/// by 257, as those of files are. Shares the memory of one that has 8.
///
/// \param where  Who asks, for the error message.
/// \throws c10::ValueError unless it is grey, BGR or BGRA with 8 or 16 bits.
cv::Mat with_8_bits(const cv::Mat& image, std::string_view where);

}  // namespace tern
