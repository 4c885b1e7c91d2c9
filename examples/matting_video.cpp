#include "matting_video.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <opencv2/calib3d.hpp>
#include <opencv2/features2d.hpp>
#include <opencv2/imgproc.hpp>
#include <tern/data/formats/error.h>
#include <tern/data/formats/file_io.h>
#include <torch/types.h>

namespace tern::examples {

namespace {

/// Returns a view of a contiguous [H, W, 3] kByte tensor.
cv::Mat mat_of(const torch::Tensor& image) {
  return {
      static_cast<int>(image.size(0)),
      static_cast<int>(image.size(1)),
      CV_8UC3,
      image.data_ptr()};
}

}  // namespace

torch::Tensor resized(const torch::Tensor& image, ImageSize size) {
  torch::Tensor out = torch::empty({size.height, size.width, 3}, torch::kByte);
  cv::Mat target = mat_of(out);
  cv::resize(mat_of(image), target, target.size(), 0, 0, cv::INTER_AREA);
  return out;
}

torch::Tensor align_background(
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  const cv::Mat scene = mat_of(src), background = mat_of(bgr);
  const auto detector = cv::ORB::create();
  std::vector<cv::KeyPoint> of_scene, of_background;
  cv::Mat scene_features, background_features;
  detector->detectAndCompute(scene, {}, of_scene, scene_features);
  detector
      ->detectAndCompute(background, {}, of_background, background_features);
  std::vector<cv::DMatch> matches;
  if (!scene_features.empty() && !background_features.empty()) {
    cv::BFMatcher(cv::NORM_HAMMING)
        .match(background_features, scene_features, matches);
  }
  // Keeps the best 15% of the matches, as the paper's program does.
  std::sort(matches.begin(), matches.end());
  matches.resize(matches.size() * 15 / 100);
  std::vector<cv::Point2f> from, to;
  for (const cv::DMatch& match : matches) {
    from.push_back(of_background[match.queryIdx].pt);
    to.push_back(of_scene[match.trainIdx].pt);
  }
  const cv::Mat homography =
      from.size() < 4 ? cv::Mat() : cv::findHomography(from, to, cv::RANSAC);
  TORCH_CHECK_VALUE(
      !homography.empty(),
      fmt::format(
          "[align_background] {} points of the scene and its background are "
          "alike; expected some dozens in one plane. Omit "
          "--preprocess-alignment.",
          from.size()));
  torch::Tensor aligned = src.clone();
  cv::Mat target = mat_of(aligned);
  cv::warpPerspective(
      background,
      target,
      homography,
      scene.size(),
      cv::INTER_LINEAR,
      cv::BORDER_TRANSPARENT);
  return aligned;
}

VideoReader::VideoReader(
    const std::filesystem::path& file,
    std::optional<ImageSize> size)
    : video_(file.string()), size_(size) {
  if (!video_.isOpened()) {
    throw DataError(file, "is not a video that OpenCV can open");
  }
}

std::optional<torch::Tensor> VideoReader::next() {
  cv::Mat frame;
  if (!video_.read(frame)) return {};
  torch::Tensor image = torch::empty({frame.rows, frame.cols, 3}, torch::kByte);
  cv::Mat target = mat_of(image);
  cv::cvtColor(frame, target, cv::COLOR_BGR2RGB);
  return size_ ? resized(image, *size_) : image;
}

double VideoReader::rate() const {
  const double rate = video_.get(cv::CAP_PROP_FPS);
  return rate > 0 ? rate : 25;
}

VideoWriter::VideoWriter(std::filesystem::path file, double rate)
    : file_(std::move(file)), rate_(rate) {}

void VideoWriter::write(const torch::Tensor& image) {
  const torch::Tensor colors =
      image.dim() == 2 ? image.expand({3, -1, -1}) : image;
  const torch::Tensor bytes = colors.mul(255)
                                  .round()
                                  .clamp(0, 255)
                                  .flip({0})  // BGR
                                  .permute({1, 2, 0})
                                  .to(torch::kCPU, torch::kByte)
                                  .contiguous();
  const cv::Mat frame = mat_of(bytes);
  if (!video_.isOpened()) {
    make_folders(file_.parent_path());
    const int code = cv::VideoWriter::fourcc('m', 'p', '4', 'v');
    video_.open(file_.string(), code, rate_, frame.size());
  }
  if (!video_.isOpened()) {
    throw DataError(file_, "is not a video that OpenCV can write");
  }
  video_.write(frame);
}

}  // namespace tern::examples
