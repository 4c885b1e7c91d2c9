#include "tern/vision/datasets/preprocess.h"

#include <opencv2/core/mat.hpp>

#include "tern/data/support/enum_names.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/mat_pixels.h"
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
      "[ImagePreprocessor] unknown padding mode");
  if (what.resize == "center_crop") {
    transforms_ = {center_crop(static_cast<float>(what.margin))};
  } else if (!is_exact_) {
    sizing_.resize = value_of(
        kResizeNames,
        what.resize,
        "[ImagePreprocessor] unknown resize method");
  }
}

ImagePreprocessor::ImagePreprocessor(const ImageDataset& images)
    : size_(images.image_size()),
      decode_(images.options().decode),
      sizing_(images.options().sizing),
      transforms_(images.options().transforms.valid) {}

/// \param sample  Function (warp, pixels) that samples the image.
template <class Sample>
torch::Tensor ImagePreprocessor::prepared(
    ImageSize image,
    const std::string& path,
    const Sample& sample) const {
  if (is_exact_ && image != size_) {
    throw_data_error(
        path,
        "is {} x {} pixels (height x width); the model accepts only {} x {}. "
        "Resize the image, or train with a `size`.",
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
  const torch::Tensor pixels =
      image.defined() ? image.cpu().contiguous() : image;
  return convert_pixels(as_mat(pixels, "prepare_image"), /*is_rgb=*/true);
}

}  // namespace tern
