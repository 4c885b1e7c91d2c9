#include "tern/vision/datasets/preprocess.h"

#include <opencv2/core/check.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/support/enum_names.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/sample_pixels.h"
#include "tern/vision/transforms/geometry.h"

namespace tern {
namespace {

constexpr EnumNames<ResizeMethod, 4> kResizeNames = {{
    {"squish", ResizeMethod::squish},
    {"crop", ResizeMethod::crop},
    {"pad", ResizeMethod::pad},
    {"none", ResizeMethod::none},
}};
constexpr EnumNames<Padding, 3> kPaddingNames = {{
    {"zeros", Padding::zeros},
    {"border", Padding::border},
    {"reflection", Padding::reflection},
}};

/// 16 bits are divided by 257, as those of files are.
cv::Mat with_8_bits(const cv::Mat& image, std::string_view where) {
  TERN_CHECK_VALUE(
      !image.empty() && image.dims == 2 &&
          (image.depth() == CV_8U || image.depth() == CV_16U) &&
          (image.channels() == 1 || image.channels() == 3 ||
           image.channels() == 4),
      "[{}] the cv::Mat is {} x {} of {}; expected grey, BGR or BGRA with 8 or "
      "16 bits. Use cv::Mat::convertTo with the scale that takes white to 255.",
      where,
      image.rows,
      image.cols,
      cv::typeToString(image.type()));
  if (image.depth() == CV_8U) return image;
  cv::Mat bytes;
  image.convertTo(bytes, CV_8U, 1.0 / 257);
  return bytes;
}

/// The colours of grey, BGR, BGRA or, with `is_rgb`, RGB as a model takes them.
cv::Mat with_channels(const cv::Mat& image, bool is_rgb, int64_t channels) {
  const bool is_grey = image.channels() == 1, has_alpha = image.channels() == 4;
  if (image.channels() == channels && (is_grey || is_rgb)) return image;
  const int code = channels == 1 ? (has_alpha ? cv::COLOR_BGRA2GRAY
                                    : is_rgb  ? cv::COLOR_RGB2GRAY
                                              : cv::COLOR_BGR2GRAY)
                   : is_grey     ? cv::COLOR_GRAY2RGB
                   : has_alpha   ? cv::COLOR_BGRA2RGB
                                 : cv::COLOR_BGR2RGB;
  cv::Mat converted;
  cv::cvtColor(image, converted, code);
  return converted;
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
    : size_(what.height, what.width),
      is_exact_(what.resize == "exact"),
      decode_{
          .channels = what.channels,
          .exif_orientation = what.exif_orientation} {
  sizing_.padding = value_of(
      kPaddingNames,
      what.padding,
      "[ImagePreprocessor] there is no padding mode");
  if (what.resize == "centre_crop") {
    transforms_ = {centre_crop(static_cast<float>(what.margin))};
  } else if (!is_exact_) {
    sizing_.resize = value_of(
        kResizeNames,
        what.resize,
        "[ImagePreprocessor] there is no resize method");
  }
}

ImagePreprocessor::ImagePreprocessor(const ImageDataset& images)
    : size_(images.image_size()),
      decode_(images.options().decode),
      sizing_(images.options().sizing),
      transforms_(images.options().transforms.valid) {}

/// \param sample  Samples the image: (warp, pixels).
template <class Sample>
torch::Tensor ImagePreprocessor::prepared(
    ImageSize image,
    const std::string& path,
    const Sample& sample) const {
  if (is_exact_ && image != size_) {
    throw_data_error(
        path,
        "is {} x {} pixels (height x width); the model takes {} x {} "
        "alone. Resize the image, or train with a `size`.",
        image.height,
        image.width,
        size_.height,
        size_.width);
  }
  static thread_local SamplePlan plan;
  SampleRng none(0, 0, 0);
  make_plan(transforms_, sizing_, image, size_, none, plan);
  torch::Tensor out =
      torch::empty({size_.height, size_.width, channels()}, torch::kByte);
  auto* pixels = out.mutable_data_ptr<uint8_t>();
  Warp warp = plan.warp();
  warp.antialias = true;
  sample(warp, pixels);
  plan.finish_pixels({pixels, size_, channels()});
  return out;
}

Matrix3 ImagePreprocessor::matrix(ImageSize image) const {
  SamplePlan plan;
  SampleRng none(0, 0, 0);
  make_plan(transforms_, sizing_, image, size_, none, plan);
  return plan.warp().matrix;
}

torch::Tensor ImagePreprocessor::read(const std::string& path, ImageSize* size)
    const {
  static thread_local ScratchBuffer buffer;
  const EncodedImage image(read_image_file(path, buffer), path, decode_);
  if (size) *size = image.size();
  return prepared(image.size(), path, [&](const Warp& warp, uint8_t* pixels) {
    image.sample(warp, size_, pixels);
  });
}

torch::Tensor ImagePreprocessor::convert_pixels(const cv::Mat& any, bool is_rgb)
    const {
  const cv::Mat image = with_channels(any, is_rgb, channels());
  const PixelView view = {
      image.data,
      image.rows,
      image.cols,
      channels(),
      static_cast<int64_t>(image.step[0]),
      image.dataend};
  const ImageSize size = {image.rows, image.cols};
  return prepared(size, "the image", [&](const Warp& warp, uint8_t* pixels) {
    sample_pixels(view, warp, size_, pixels);
  });
}

torch::Tensor ImagePreprocessor::convert(
    const cv::Mat& image,
    std::string_view where) const {
  return convert_pixels(with_8_bits(image, where), /*is_rgb=*/false);
}

torch::Tensor ImagePreprocessor::convert(const torch::Tensor& image) const {
  TERN_CHECK_VALUE(
      image.defined() && image.scalar_type() == torch::kByte &&
          image.numel() > 0 &&
          (image.dim() == 2 ||
           (image.dim() == 3 && (image.size(2) == 1 || image.size(2) == 3))),
      "[prepare_image] the image is {}; expected [H, W] or [H, W, 1 or 3] "
      "kByte.",
      shapes_of({image}));
  const torch::Tensor pixels = image.cpu().contiguous();
  const bool is_rgb = image.dim() == 3 && image.size(2) == 3;
  return convert_pixels(
      cv::Mat(
          static_cast<int>(image.size(0)),
          static_cast<int>(image.size(1)),
          is_rgb ? CV_8UC3 : CV_8UC1,
          pixels.data_ptr()),
      is_rgb);
}

}  // namespace tern
