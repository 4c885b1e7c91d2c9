#include "tern/vision/preprocess.h"

#include <algorithm>
#include <array>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <opencv2/core/check.hpp>

#include "tern/data/formats/error.h"
#include "tern/kernels/normalize_images.h"
#include "tern/vision/image_file.h"
#include "tern/vision/sample_pixels.h"
#include "tern/vision/transforms/resize.h"

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

namespace {

constexpr std::array<std::pair<const char*, ResizeMethod>, 4> kResizeNames = {{
    {"squish", ResizeMethod::squish},
    {"crop", ResizeMethod::crop},
    {"pad", ResizeMethod::pad},
    {"none", ResizeMethod::none},
}};
constexpr std::array<std::pair<const char*, Padding>, 3> kPaddingNames = {{
    {"zeros", Padding::zeros},
    {"border", Padding::border},
    {"reflection", Padding::reflection},
}};

template <class Names, class Value>
std::string name_of(const Names& names, Value value) {
  return std::find_if(
             names.begin(),
             names.end(),
             [&](const auto& item) { return item.second == value; })
      ->first;
}

template <class Names>
auto value_of(const Names& names, const std::string& name) {
  const auto at =
      std::find_if(names.begin(), names.end(), [&](const auto& item) {
        return item.first == name;
      });
  TORCH_CHECK_VALUE(
      at != names.end(),
      fmt::format(
          "[ImagePreprocessor] '{}' is no way to resize or to pad an image; "
          "data/image_preprocessing.h has the words.",
          name));
  return at->second;
}

}  // namespace

std::optional<ImagePreprocessing> describe_preprocessing(
    const ImageDataset& images,
    const ImageStats& stats) {
  const ImageDatasetOptions& options = images.options();
  ImagePreprocessing what{
      .height = images.image_size().height,
      .width = images.image_size().width,
      .channels = options.decode.channels,
      .resize =
          options.size ? name_of(kResizeNames, options.sizing.resize) : "exact",
      .padding = name_of(kPaddingNames, options.sizing.padding),
      .exif_orientation = options.decode.exif_orientation,
      .mean = stats.mean,
      .stddev = stats.stddev};
  for (const TransformPtr& transform : options.transforms.valid) {
    if (!transform->describe(what)) return std::nullopt;
  }
  return what;
}

ImagePreprocessor::ImagePreprocessor(const ImagePreprocessing& what)
    : what_(what) {
  sizing_.padding = value_of(kPaddingNames, what.padding);
  if (what.resize == "centre_crop") {
    transforms_ = {centre_crop(static_cast<float>(what.margin))};
  } else if (what.resize != "exact") {
    sizing_.resize = value_of(kResizeNames, what.resize);
  }
}

Warp ImagePreprocessor::warp_for(ImageSize image, const std::string& path)
    const {
  if (what_.resize == "exact" && image != size()) {
    throw DataError(
        path,
        fmt::format(
            "is {} x {} pixels (height x width); the model takes {} x {} "
            "alone. Resize the image, or train with a `size`.",
            image.height,
            image.width,
            what_.height,
            what_.width));
  }
  static thread_local SamplePlan plan;
  SampleRng none(0, 0, 0);
  make_plan(transforms_, sizing_, image, size(), none, plan);
  return plan.warp();
}

torch::Tensor ImagePreprocessor::read(const std::string& path) const {
  static thread_local ScratchBuffer buffer;
  const EncodedImage image(
      read_image_file(path, buffer),
      path,
      {.channels = what_.channels, .exif_orientation = what_.exif_orientation});
  const Warp warp = warp_for(image.size(), path);
  torch::Tensor pixels =
      torch::empty({what_.height, what_.width, what_.channels}, torch::kByte);
  image.sample(warp, size(), pixels.mutable_data_ptr<uint8_t>());
  return pixels;
}

torch::Tensor ImagePreprocessor::convert(const PixelView& image) const {
  const Warp warp = warp_for({image.height, image.width}, "the image");
  torch::Tensor pixels =
      torch::empty({what_.height, what_.width, what_.channels}, torch::kByte);
  sample_pixels(image, warp, size(), pixels.mutable_data_ptr<uint8_t>());
  return pixels;
}

torch::Tensor ImagePreprocessor::normalize(
    const torch::Tensor& images,
    torch::ScalarType dtype) const {
  return normalize_images(images, what_.mean, what_.stddev, dtype);
}

}  // namespace tern
