#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <opencv2/imgcodecs.hpp>

#include "tern/data/formats/file_io.h"

namespace tern {

/// An image of random bytes, the same for the same size and type.
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

/// Writes a random PNG, and the folders above it.
inline void
write_image(const std::filesystem::path& path, int height = 8, int width = 8) {
  make_folders(path.parent_path());
  write_file(path, encode(random_image(height, width), ".png"));
}

}  // namespace tern
