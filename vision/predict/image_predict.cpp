#include "tern/vision/predict/image_predict.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <opencv2/core/mat.hpp>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/parallel_for.h"
#include "tern/learner/decode_predictions.h"
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

bool has_places(const std::vector<OutputInfo>& outputs) {
  return std::ranges::any_of(outputs, [](const OutputInfo& output) {
    return output.kind == TargetKind::boxes ||
           output.kind == TargetKind::points;
  });
}

/// Drops the boxes of a detector that have no area.
void drop_empty_boxes(Prediction& output) {
  const torch::Tensor kept = has_area(output.boxes).nonzero().view({-1}).cpu();
  if (kept.size(0) == output.boxes.size(0)) return;
  output.boxes = output.boxes.index_select(0, kept.to(output.boxes.device()));
  const Prediction all = output;
  output.indices.clear();
  output.labels.clear();
  output.scores.clear();
  for (int64_t i = 0; i < kept.size(0); ++i) {
    const auto row = static_cast<size_t>(kept[i].item<int64_t>());
    output.indices.push_back(all.indices[row]);
    output.labels.push_back(all.labels[row]);
    output.scores.push_back(all.scores[row]);
  }
  output.label = fmt::format("{}", fmt::join(output.labels, ", "));
}

/// Converts boxes and points from pixels of the model's input to pixels of the
/// photo, as Predictor does.
void bring_to_photo(
    Prediction& prediction,
    const std::vector<OutputInfo>& outputs,
    const PhotoGeometry& geometry) {
  // A detector's three outputs form a single prediction.
  const bool is_detector = prediction.outputs[0].boxes.defined();
  for (size_t i = 0; i < prediction.outputs.size(); ++i) {
    Prediction& output = prediction.outputs[i];
    const size_t place = is_detector && i > 0 ? i + 2 : i;
    if (output.boxes.defined()) {
      output.boxes = geometry.boxes_on_photo(output.boxes);
      drop_empty_boxes(output);
    } else if (output.points.defined()) {
      output =
          decode({geometry.points_on_photo(output.points)}, {outputs[place]})
              .outputs[0];
    }
  }
  std::vector<Prediction> all = std::move(prediction.outputs);
  prediction = all[0];
  prediction.outputs = std::move(all);
}

/// Predicts an image that was prepared from a photo of size `photo`.
Prediction predict_photo(
    Learner& learn,
    const torch::Tensor& input,
    const ImagePreprocessor& images,
    ImageSize photo) {
  Prediction prediction = learn.predict(input);
  const auto outputs = output_info(learn.data(), learn.options().loss);
  if (has_places(outputs)) {
    const ImageSize size = {input.size(0), input.size(1)};
    bring_to_photo(prediction, outputs, PhotoGeometry(images, size, photo));
  }
  return prediction;
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
  for (int64_t i = 0; i < std::ssize(result.paths); ++i) {
    result.predictions.push_back(decode(all, i));
    if (has_places(all.info)) {
      bring_to_photo(
          result.predictions.back(),
          all.info,
          PhotoGeometry(
              ImagePreprocessor(images),
              images.image_size(),
              photo_size(result.paths[i], images.options().decode)));
    }
    result.labels.push_back(result.predictions.back().label);
  }
  return result;
}

std::vector<ImageDetections> get_detections(
    Learner& learn,
    std::vector<std::string> paths) {
  const Predictions all = learn.get_preds(test_loader(learn.data(), paths));
  const ImageDataset& images = images_of(learn.data());
  const auto outputs_of = [&](int64_t image) {
    Tensors outputs;
    for (const torch::Tensor& output : all.outputs) {
      outputs.push_back(output.defined() ? output[image] : torch::Tensor());
    }
    return outputs;
  };
  const Tensors first = outputs_of(0);
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
      Tensors outputs = outputs_of(i);
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
