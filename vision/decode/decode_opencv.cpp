#include <algorithm>
#include <atomic>
#include <iostream>
#include <mutex>
#include <span>
#include <streambuf>
#include <string>
#include <vector>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/error.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/decoders.h"

namespace tern {

namespace {

thread_local std::string* kept = nullptr;

/// Replaces the buffer of std::cerr: stores the output of threads that capture
/// it, and forwards the output of the others.
class ByThread final : public std::streambuf {
 public:
  std::atomic<std::streambuf*> original = nullptr;

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    if (kept == nullptr) return original.load()->sputn(text, count);
    constexpr size_t kMost = 4096;
    const size_t room = kMost - std::min(kept->size(), kMost);
    kept->append(text, std::min(static_cast<size_t>(count), room));
    return count;
  }
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return 0;
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  int sync() override {
    return kept == nullptr ? original.load()->pubsync() : 0;
  }
};

// Never destroyed, because another thread may still write to it when the last
// QuietCerr is destroyed.
ByThread& by_thread() {
  static auto* const buffer = new ByThread;
  return *buffer;
}

std::mutex mutex;
int64_t living = 0;

/// Returns the reason in OpenCV's message: the text after "error: (-2:Name) ".
std::string reason_in(const std::string& words) {
  const std::string reason = "OpenCV cannot decode it";
  const size_t error = words.find("error: (");
  const size_t begin = words.find(") ", error);
  if (error == std::string::npos || begin == std::string::npos) return reason;
  const size_t end = words.find_first_of("\r\n", begin);
  return reason + ": " + words.substr(begin + 2, end - begin - 2);
}

[[noreturn]] void fail(const EncodedImage& file, const std::string& reason) {
  throw DataError(
      std::string(file.path()),
      std::string("is a damaged or unusual ") +
          to_string(file.header().format) + " file (" + reason +
          "). Convert it to PNG, download it again or remove it.");
}

}  // namespace

QuietCerr::QuietCerr() {
  const std::lock_guard lock(mutex);
  ByThread& buffer = by_thread();
  if (std::cerr.rdbuf() != &buffer) {
    buffer.original = std::cerr.rdbuf();
    std::cerr.rdbuf(&buffer);
  }
  ++living;
  kept = &text_;
}

QuietCerr::~QuietCerr() {
  const std::lock_guard lock(mutex);
  kept = nullptr;
  // If the program has replaced the buffer in the meantime, the program's
  // buffer is kept.
  if (--living == 0 && std::cerr.rdbuf() == &by_thread()) {
    std::cerr.rdbuf(by_thread().original);
  }
}

void decode_opencv(const EncodedImage& file, uint8_t* pixels) {
  // The workers of the loader already process images in parallel, so further
  // OpenCV threads would only compete with them.
  static std::once_flag once;
  std::call_once(once, [] { cv::setNumThreads(1); });
  const bool is_gray = file.options().channels == 1;
  try {
    std::span<const uint8_t> bytes = file.bytes();
    std::vector<uint8_t> as_stored;
    if (file.header().format == ImageFormat::tiff) {
      as_stored = tiff_as_stored(bytes);
      if (!as_stored.empty()) bytes = as_stored;
    }
    const cv::Mat encoded(
        1,
        static_cast<int>(bytes.size()),
        CV_8U,
        const_cast<uint8_t*>(bytes.data()));
    const QuietCerr words;
    // Does not reuse a matrix: if OpenCV 4.6 cannot read a header, it leaves
    // the previous image in the matrix without an error.
    cv::Mat decoded = cv::imdecode(
        encoded,
        cv::IMREAD_ANYDEPTH | cv::IMREAD_IGNORE_ORIENTATION |
            (is_gray ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR));
    if (decoded.empty()) fail(file, reason_in(words.text()));
    if (ImageSize(decoded.rows, decoded.cols) != file.stored_size() ||
        decoded.channels() != file.options().channels) {
      fail(file, "its size differs from its header");
    }
    if (decoded.depth() == CV_16U) {
      decoded.convertTo(decoded, CV_8U, 1.0 / 257);
    } else if (decoded.depth() != CV_8U) {
      fail(file, "its samples have neither 8 nor 16 bits");
    }
    cv::Mat target(
        decoded.rows,
        decoded.cols,
        is_gray ? CV_8UC1 : CV_8UC3,
        pixels);
    if (is_gray) {
      decoded.copyTo(target);
    } else {
      cv::cvtColor(decoded, target, cv::COLOR_BGR2RGB);
    }
  } catch (const cv::Exception& error) {
    fail(file, "OpenCV: " + error.err);
  }
}

}  // namespace tern
