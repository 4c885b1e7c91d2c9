#include "tern/vision/predict/image_predict.h"

#include <utility>

#include <opencv2/core/mat.hpp>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/parallel_for.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/loop.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_items.h"
#include "tern/vision/datasets/preprocess.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/predict/photo_geometry.h"

namespace tern {
namespace {

const ImageDataset& images_of(const DataBunch& data) {
  const auto& loader = data.valid ? data.valid : data.train;
  const auto* images = loader ? find_images(loader->dataset()) : nullptr;
  TORCH_CHECK_VALUE(
      images,
      "[prepare_image] the data is not image files, so the preprocessing of "
      "an image is unknown; create it with ImageDataBunch or DataBlock, or "
      "call Learner::predict with a prepared tensor.");
  return *images;
}

/// Returns a loader of images without labels.
DataLoader test_loader(const DataBunch& data, std::vector<std::string> paths) {
  const ImageDataset& images = images_of(data);
  ImageDatasetOptions options = images.options();
  options.size = images.image_size();
  options.bad_images = BadImagePolicy::error();
  const auto& loader = data.valid ? data.valid : data.train;
  return DataLoader(
      std::make_shared<ImageDataset>(TargetedImages{std::move(paths)}, options),
      loader->in_order().options());
}

}  // namespace

torch::Tensor prepare_image(
    const DataBunch& data,
    const std::filesystem::path& file) {
  return ImagePreprocessor(images_of(data)).read(file.string());
}

torch::Tensor prepare_image(const DataBunch& data, const torch::Tensor& image) {
  return ImagePreprocessor(images_of(data)).convert(image);
}

torch::Tensor prepare_image(const DataBunch& data, const cv::Mat& image) {
  return ImagePreprocessor(images_of(data)).convert(image, "prepare_image");
}

namespace {

/// Predicts an image that was prepared from a photo of size `photo`.
Prediction predict_photo(
    Learner& learn,
    const torch::Tensor& input,
    const ImagePreprocessor& images,
    ImageSize photo) {
  Tensors outputs = loop::sample_outputs(parts_of(learn), {input});
  const auto info = output_info(learn.data(), learn.options().loss);
  if (has_places(info)) {
    const ImageSize size = {input.size(0), input.size(1)};
    outputs = PhotoGeometry(images, size, photo)
                  .outputs_on_photo(outputs, info, /*masks=*/false);
  }
  return decode(outputs, info);
}

/// Reads the size of the image, after its EXIF rotation, from the file's
/// header.
ImageSize photo_size(const std::string& path, const DecodeOptions& decode) {
  ScratchBuffer buffer;
  return EncodedImage(read_image_file(path, buffer), path, decode).size();
}

}  // namespace

Prediction Learner::predict(const std::filesystem::path& image_file) {
  const ImagePreprocessor images(images_of(data()));
  ImageSize photo;
  const torch::Tensor input = images.read(image_file.string(), &photo);
  return predict_photo(*this, input, images, photo);
}

Prediction Learner::predict(const cv::Mat& image) {
  const ImagePreprocessor images(images_of(data()));
  const torch::Tensor input = images.convert(image, "prepare_image");
  return predict_photo(*this, input, images, {image.rows, image.cols});
}

ImagePredictions get_preds(
    Learner& learn,
    const std::filesystem::path& folder,
    const ImageFolderOptions& options) {
  std::vector<std::string> paths;
  for (ImageItem& item : items_from_folder(folder, options)) {
    paths.push_back(std::move(item.path));
  }
  return get_preds(learn, std::move(paths));
}

ImagePredictions get_preds(Learner& learn, std::vector<std::string> paths) {
  ImagePredictions result;
  const Predictions all = learn.get_preds(test_loader(learn.data(), paths));
  result.preds = all.preds;
  result.paths = std::move(paths);
  const ImageDataset& images = images_of(learn.data());
  const ImagePreprocessor preprocessor(images);
  for (int64_t i = 0; i < std::ssize(result.paths); ++i) {
    Tensors outputs = sample_outputs(all, i);
    if (has_places(all.info)) {
      const PhotoGeometry geometry(
          preprocessor,
          images.image_size(),
          photo_size(result.paths[i], images.options().decode));
      outputs = geometry.outputs_on_photo(outputs, all.info, /*masks=*/false);
    }
    result.predictions.push_back(decode(outputs, all.info));
    result.labels.push_back(result.predictions.back().label);
  }
  return result;
}

std::vector<ImageDetections> get_detections(
    Learner& learn,
    std::vector<std::string> paths) {
  const Predictions all = learn.get_preds(test_loader(learn.data(), paths));
  const ImageDataset& images = images_of(learn.data());
  const Tensors first = sample_outputs(all, 0);
  TERN_CHECK_VALUE(
      are_detections(first, all.info),
      "[get_detections] the outputs for an image are {}; expected a detector's "
      "boxes [D, 4], scores [D] and labels [D]. Call get_preds for other "
      "models.",
      shapes_of(first));
  const ImagePreprocessor preprocessor(images);
  std::vector<ImageDetections> result(paths.size());
  parallel_for(0, std::ssize(paths), 1, [&](int64_t begin, int64_t end) {
    const torch::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      Tensors outputs = sample_outputs(all, i);
      outputs.resize(3);
      const PhotoGeometry geometry(
          preprocessor,
          images.image_size(),
          photo_size(paths[i], images.options().decode));
      const Tensors found = geometry.detections_on_photo(outputs);
      result[i] = {found[0], found[1], found[2]};
    }
  });
  return result;
}

}  // namespace tern
