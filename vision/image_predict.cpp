#include "tern/vision/image_predict.h"

#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/error.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/preprocess.h"
#include "tern/vision/sample_pixels.h"
#include "tern/vision/visible_batch.h"

namespace tern {
namespace {

/// The data set itself, or the first one within.
const ImageDataset* find_images(const Dataset& data) {
  if (const auto* images = dynamic_cast<const ImageDataset*>(&data)) {
    return images;
  }
  if (const auto* part = dynamic_cast<const Subset*>(&data)) {
    return find_images(part->source());
  }
  const auto* all = dynamic_cast<const Concat*>(&data);
  return all && !all->sources().empty() ? find_images(*all->sources()[0])
                                        : nullptr;
}

const ImageDataset& images_of(const DataBunch& data) {
  const auto& loader = data.valid ? data.valid : data.train;
  const auto* images = loader ? find_images(loader->dataset()) : nullptr;
  TORCH_CHECK_VALUE(
      images,
      "[prepare_image] the data are no image files, so there is nothing to say "
      "how an image is prepared; make them with ImageDataBunch or DataBlock, "
      "or call Learner::predict with a prepared tensor.");
  return *images;
}

/// Those of validation, and every image of the size that the model knows.
ImageDatasetOptions options_for_answers(const ImageDataset& images) {
  ImageDatasetOptions options = images.options();
  options.size = images.image_size();
  options.bad_images = BadImagePolicy::error();
  return options;
}

torch::Tensor with_channels(const torch::Tensor& image, int64_t channels) {
  if (image.size(2) == channels) return image.contiguous();
  if (image.size(2) == 1) {
    return image.expand({image.size(0), image.size(1), 3}).contiguous();
  }
  // DecodeOptions::channels: OpenCV's weights.
  static const torch::Tensor weights = torch::tensor({0.299f, 0.587f, 0.114f});
  return image.to(torch::kFloat)
      .matmul(weights)
      .round()
      .to(torch::kByte)
      .unsqueeze(2);
}

}  // namespace

torch::Tensor prepare_image(
    const DataBunch& data,
    const std::filesystem::path& file) {
  const DataLoader loader = test_loader(data, {file.string()});
  return loader.dataset().get_batch({0}, {}).inputs[0][0];
}

torch::Tensor prepare_image(const DataBunch& data, const torch::Tensor& image) {
  TORCH_CHECK_VALUE(
      image.defined() && image.scalar_type() == torch::kByte &&
          image.numel() > 0 &&
          (image.dim() == 2 ||
           (image.dim() == 3 && (image.size(2) == 1 || image.size(2) == 3))),
      fmt::format(
          "[prepare_image] the image is {}; expected [H, W] or [H, W, 1 or 3] "
          "kByte.",
          image.defined() ? fmt::format(
                                "[{}] {}",
                                fmt::join(image.sizes(), ", "),
                                c10::toString(image.scalar_type()))
                          : "undefined"));
  const ImageDatasetOptions options = options_for_answers(images_of(data));
  const torch::Tensor pixels = with_channels(
      (image.dim() == 2 ? image.unsqueeze(2) : image).cpu(),
      options.decode.channels);
  const ImageSize source = {pixels.size(0), pixels.size(1)};
  const uint8_t* begin = pixels.const_data_ptr<uint8_t>();
  SamplePlan plan;
  SampleRng rng(0, 0, 0);
  make_plan(
      options.transforms.valid,
      options.sizing,
      source,
      *options.size,
      rng,
      plan);
  torch::Tensor out = torch::empty(
      {options.size->height, options.size->width, options.decode.channels},
      torch::kByte);
  uint8_t* slot = out.mutable_data_ptr<uint8_t>();
  sample_pixels(
      {.pixels = begin,
       .height = source.height,
       .width = source.width,
       .channels = options.decode.channels,
       .stride = source.width * options.decode.channels,
       .end = begin + pixels.numel()},
      plan.warp(),
      *options.size,
      slot);
  plan.finish_pixels({slot, *options.size, options.decode.channels});
  return out;
}

torch::Tensor prepare_image(const DataBunch& data, const cv::Mat& image) {
  const cv::Mat bytes = with_8_bits(image, "prepare_image");
  cv::Mat rgb;
  if (bytes.channels() == 1) {
    rgb = bytes.clone();
  } else {
    cv::cvtColor(
        bytes,
        rgb,
        bytes.channels() == 3 ? cv::COLOR_BGR2RGB : cv::COLOR_BGRA2RGB);
  }
  return prepare_image(
      data,
      torch::from_blob(
          rgb.data,
          {rgb.rows, rgb.cols, rgb.channels()},
          torch::kByte));
}

Prediction predict(Learner& learn, const std::filesystem::path& file) {
  return learn.predict(prepare_image(learn.data(), file));
}

Prediction predict(Learner& learn, const cv::Mat& image) {
  return learn.predict(prepare_image(learn.data(), image));
}

Prediction predict(Learner& learn, const torch::Tensor& image) {
  return learn.predict(prepare_image(learn.data(), image));
}

DataLoader test_loader(const DataBunch& data, std::vector<std::string> paths) {
  const ImageDatasetOptions options = options_for_answers(images_of(data));
  const auto& loader = data.valid ? data.valid : data.train;
  DataLoaderOptions loading = loader->in_order().options();
  const auto count = static_cast<int64_t>(paths.size());
  return DataLoader(
      ImageDataset::with_targets(
          std::move(paths),
          std::make_shared<NoTargets>(count),
          options),
      loading);
}

ImagePredictions get_preds(
    Learner& learn,
    const std::filesystem::path& folder,
    const ImageFolderOptions& options) {
  std::vector<std::string> paths = find_image_files(folder, options);
  if (paths.empty()) {
    throw DataError(
        folder.string(),
        "has no image at any depth; expected at least one. Check the path.");
  }
  return get_preds(learn, std::move(paths));
}

ImagePredictions get_preds(Learner& learn, std::vector<std::string> paths) {
  ImagePredictions result;
  result.preds = learn.get_preds(test_loader(learn.data(), paths)).preds;
  result.paths = std::move(paths);
  const std::vector<std::string>& classes = learn.data().classes;
  if (!classes.empty() && result.preds.defined() && result.preds.dim() == 2) {
    const torch::Tensor likeliest = decoded(TargetKind::category, result.preds);
    for (int64_t i = 0; i < likeliest.size(0); ++i) {
      result.labels.push_back(
          class_name(classes, likeliest[i].item<int64_t>()));
    }
  }
  return result;
}

}  // namespace tern
