#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <opencv2/imgcodecs.hpp>

#include "tern/data/formats/file_io.h"

namespace tern {

/// Returns an image of random bytes, which depend only on its size and type.
inline cv::Mat random_image(int height, int width, int type = CV_8UC3) {
  cv::Mat image(height, width, type);
  cv::RNG rng(static_cast<uint64_t>(height * 1000 + width));
  rng.fill(
      image,
      cv::RNG::UNIFORM,
      0,
      CV_MAT_DEPTH(type) == CV_16U ? 65536 : 256);
  return image;
}

/// \param suffix  ".png", ".jpg", ...
inline std::vector<uint8_t> encode(
    const cv::Mat& image,
    const std::string& suffix,
    const std::vector<int>& parameters = {}) {
  std::vector<uint8_t> bytes;
  cv::imencode(suffix, image, bytes, parameters);
  return bytes;
}

/// Returns a JPEG with an EXIF orientation.
inline std::vector<uint8_t> with_orientation(
    const std::vector<uint8_t>& jpeg,
    uint8_t orientation) {
  const std::vector<uint8_t> app1 = {
      0xff, 0xe1, 0, 36,          'E', 'x', 'i', 'f', 0,  0, 'M', 'M', 0,
      42,   0,    0, 0,           8,   0,   1,   1,   18, 0, 3,   0,   0,
      0,    1,    0, orientation, 0,   0,   0,   0,   0,  0, 0,   0};
  std::vector<uint8_t> bytes(jpeg.begin(), jpeg.begin() + 2);
  bytes.insert(bytes.end(), app1.begin(), app1.end());
  bytes.insert(bytes.end(), jpeg.begin() + 2, jpeg.end());
  return bytes;
}

/// Writes a random PNG and creates its parent folders.
inline void
write_image(const std::filesystem::path& path, int height = 8, int width = 8) {
  make_folders(path.parent_path());
  write_file(path, encode(random_image(height, width), ".png"));
}

}  // namespace tern
