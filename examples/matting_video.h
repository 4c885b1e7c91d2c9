#pragma once

#include <filesystem>
#include <optional>

#include <opencv2/videoio.hpp>
#include <tern/vision/decode/image_size.h>
#include <torch/types.h>

namespace tern::examples {

/// Returns a [H, W, 3] kByte image resized to `size`.
torch::Tensor resized(const torch::Tensor& image, ImageSize size);

/// Warps the background to the viewpoint of the scene, by a homography between
/// matching ORB features. Pixels that the warped background does not cover are
/// copied from the scene.
/// \param src, bgr  [H, W, 3] kByte, RGB, of any sizes.
/// \return          Like `src`.
/// \throws c10::ValueError if too few features match.
torch::Tensor align_background(
    const torch::Tensor& src,
    const torch::Tensor& bgr);

/// Reads the frames of a video file.
class VideoReader {
 public:
  /// \param size  Resizes all frames to this size; empty: keeps their size.
  /// \throws DataError if OpenCV cannot open it.
  explicit VideoReader(
      const std::filesystem::path& file,
      std::optional<ImageSize> size = {});

  /// Returns the next frame, [H, W, 3] kByte, RGB; empty at the end.
  std::optional<torch::Tensor> next();
  /// Returns the frames per second; 25 if the file does not state them.
  double rate() const;

 private:
  cv::VideoCapture video_;
  std::optional<ImageSize> size_;
};

/// Writes an MP4 file with the size of its first frame.
class VideoWriter {
 public:
  VideoWriter(std::filesystem::path file, double rate);
  /// \param image  As for `save_image`: floating-point [3, H, W] or [H, W] in
  ///               0..1.
  /// \throws DataError if OpenCV cannot write it.
  void write(const torch::Tensor& image);

 private:
  std::filesystem::path file_;
  double rate_;
  cv::VideoWriter video_;
};

}  // namespace tern::examples
