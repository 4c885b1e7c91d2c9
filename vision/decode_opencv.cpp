#include "tern/vision/decode_opencv.h"

#include <string>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/error.h"
#include "tern/vision/quiet_cerr.h"

namespace tern {
namespace {

/// Images are spread over the workers of the loader; threads of OpenCV under
/// each of them would only be in each other's way. Once, for the process.
void use_one_opencv_thread() {
  static const bool once = [] {
    cv::setNumThreads(1);
    return true;
  }();
  (void)once;
}

cv::Mat view_of(const uint8_t* pixels, ImageSize size, int64_t channels) {
  return {
      static_cast<int>(size.height),
      static_cast<int>(size.width),
      CV_MAKETYPE(CV_8U, static_cast<int>(channels)),
      const_cast<uint8_t*>(pixels)};
}

/// The point of what OpenCV writes: the text after "error: (-2:Name) ".
std::string reason_in(const std::string& words) {
  const std::string reason = "OpenCV cannot decode it";
  const size_t error = words.find("error: (");
  const size_t begin = words.find(") ", error);
  if (error == std::string::npos || begin == std::string::npos) return reason;
  const size_t end = words.find_first_of("\r\n", begin);
  return reason + ": " + words.substr(begin + 2, end - begin - 2);
}

[[noreturn]] void
fail(std::string_view path, ImageFormat format, const std::string& reason) {
  throw DataError(
      std::string(path),
      std::string("is a damaged or unusual ") + to_string(format) + " file (" +
          reason + "). Convert it to PNG, copy it again or remove it.");
}

}  // namespace

void decode_opencv(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    int64_t channels,
    uint8_t* pixels) {
  use_one_opencv_thread();
  static thread_local cv::Mat decoded;
  try {
    const cv::Mat encoded(
        1,
        static_cast<int>(bytes.size()),
        CV_8U,
        const_cast<uint8_t*>(bytes.data()));
    const int flags = cv::IMREAD_ANYDEPTH | cv::IMREAD_IGNORE_ORIENTATION |
                      (channels == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR);
    const QuietCerr words;
    cv::imdecode(encoded, flags, &decoded);
    if (decoded.empty()) {
      fail(path, header.format, reason_in(words.text()));
    }
    if (decoded.rows != header.height || decoded.cols != header.width ||
        decoded.channels() != channels) {
      fail(path, header.format, "its size is not what its header says");
    }
    if (decoded.depth() == CV_16U) {
      decoded.convertTo(decoded, CV_8U, 1.0 / 257);
    } else if (decoded.depth() != CV_8U) {
      fail(path, header.format, "its numbers have neither 8 nor 16 bits");
    }
    cv::Mat target = view_of(pixels, {header.height, header.width}, channels);
    if (channels == 1) {
      decoded.copyTo(target);
    } else {
      cv::cvtColor(decoded, target, cv::COLOR_BGR2RGB);
    }
  } catch (const cv::Exception& error) {
    fail(path, header.format, "OpenCV: " + error.err);
  }
}

}  // namespace tern
