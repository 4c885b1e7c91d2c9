#include "tern/vision/predict/image_predict.h"

#include <utility>

#include <opencv2/core/mat.hpp>

#include "tern/learner/decode_predictions.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_items.h"
#include "tern/vision/datasets/preprocess.h"

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

/// A loader of images without labels.
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

Prediction Learner::predict(const std::filesystem::path& image_file) {
  return predict(prepare_image(data(), image_file));
}

Prediction Learner::predict(const cv::Mat& image) {
  return predict(prepare_image(data(), image));
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
  for (int64_t i = 0; i < std::ssize(result.paths); ++i) {
    result.predictions.push_back(decode(all, i));
    result.labels.push_back(result.predictions.back().label);
  }
  return result;
}

}  // namespace tern
