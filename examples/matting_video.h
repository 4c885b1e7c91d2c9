#pragma once

#include <filesystem>
#include <optional>

#include <opencv2/videoio.hpp>
#include <tern/vision/decode/image_size.h>
#include <torch/types.h>

namespace tern::examples {

/// [H, W, 3] kByte in another size.
torch::Tensor resized(const torch::Tensor& image, ImageSize size);

/// The background as it is seen from where the scene was taken, by the features
/// that both have (ORB) and a homography; where it shows nothing, the scene.
/// \param src, bgr  [H, W, 3] kByte, RGB, of any sizes.
/// \return          As `src`.
/// \throws c10::ValueError if too little of both is alike.
torch::Tensor align_background(
    const torch::Tensor& src,
    const torch::Tensor& bgr);

/// Frames of a video file.
class VideoReader {
 public:
  /// \param size  To resize all frames to.
  /// \throws DataError if OpenCV cannot open it.
  explicit VideoReader(
      const std::filesystem::path& file,
      std::optional<ImageSize> size = {});

  /// [H, W, 3] kByte, RGB; nothing at the end.
  std::optional<torch::Tensor> next();
  /// Frames a second.
  double rate() const;

 private:
  cv::VideoCapture video_;
  std::optional<ImageSize> size_;
};

/// Writes an MP4 file, as large as its first frame.
class VideoWriter {
 public:
  VideoWriter(std::filesystem::path file, double rate);
  /// \param image  As for `save_image`: [3, H, W] or [H, W] floating in 0..1.
  /// \throws DataError if OpenCV cannot write it.
  void write(const torch::Tensor& image);

 private:
  std::filesystem::path file_;
  double rate_;
  cv::VideoWriter video_;
};

}  // namespace tern::examples
