#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/datasets/write_coco.h"

namespace tern {

/// Prepares an image as the dataset does in evaluation: decodes, resizes and
/// transforms it. Returns a sample for `Learner::predict`, [H, W, C] kByte.
/// `learn.predict("cat.jpg")` and `learn.predict(mat)` prepare the image in the
/// same way, and return boxes and points in pixels of the original image.
///
/// \throws DataError, IoError if the file cannot be read; c10::ValueError if
///         the data does not come from an ImageDataset.
torch::Tensor prepare_image(
    const DataBunch& data,
    const std::filesystem::path& file);
/// \param image  BGR, BGRA or gray with 8 or 16 bits, as from cv::imread.
torch::Tensor prepare_image(const DataBunch& data, const cv::Mat& image);
/// \param image  [H, W] or [H, W, 1 or 3] kByte, RGB, of any size.
torch::Tensor prepare_image(const DataBunch& data, const torch::Tensor& image);

/// Predictions for images without labels.
struct ImagePredictions {
  std::vector<std::string> paths;
  torch::Tensor preds;  // [N, ...] kFloat, activated; preds[i] is for paths[i]
  /// The decoded predictions. Boxes and points are in pixels of the original
  /// image.
  std::vector<Prediction> predictions;
  std::vector<std::string> labels;  // `label` of each prediction
};

/// Predicts every image below a folder, sorted by path, or every image of a
/// list. Images are prepared as in evaluation.
/// \throws DataError if there are no images or if an image cannot be read, even
///         if `bad_images` allows bad images.
ImagePredictions get_preds(
    Learner& learn,
    const std::filesystem::path& folder,
    const ImageFolderOptions& options = {});
ImagePredictions get_preds(Learner& learn, std::vector<std::string> paths);

/// Returns the objects that a detector finds in images, in pixels of the
/// original images (after the EXIF rotation), one entry per path. Unlike
/// `get_preds`, returns all detections above
/// `DetectionOptions::score_thresh`, as evaluations need them.
///
///   BoxAnnotations coco = read_coco("instances_val2017.json", "val2017");
///   write_coco_predictions(
///       "results.json", coco, get_detections(learn, coco.paths()));
///
/// \throws the errors of `get_preds`; c10::ValueError if the model is not a
///         detector.
std::vector<ImageDetections> get_detections(
    Learner& learn,
    std::vector<std::string> paths);

}  // namespace tern
