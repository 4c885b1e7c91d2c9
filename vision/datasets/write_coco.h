#pragma once

#include <filesystem>
#include <vector>

#include <torch/types.h>

#include "tern/vision/datasets/annotations.h"

namespace tern {

/// The objects that a model detected in an image. D is the largest number of
/// objects in any image of the batch; images with fewer objects are padded.
struct ImageDetections {
  /// [D, 4], floating-point: left, upper, right and lower edge in pixels of the
  /// annotated image.
  torch::Tensor boxes;
  /// [D], floating-point: confidence of the model, from 0 to 1.
  torch::Tensor scores;
  /// [D] kLong: index of the class; -1: no object (padding).
  torch::Tensor labels;
};

/// Writes detections as a COCO results file (JSON) for pycocotools' `loadRes`
/// and COCO's evaluation server: a list of image_id, category_id, bbox [x, y,
/// w, h] and score.
///
///   BoxAnnotations coco = read_coco("instances_val2017.json", "val2017");
///   write_coco_predictions(
///       "results.json", coco, get_detections(learn, coco.paths()));
///
/// Image and category ids are taken from `annotations`. The file is replaced
/// atomically. `loadRes` of pycocotools 2.0 cannot read a file without
/// detections.
///
/// \param predictions  One entry for each of annotations.images, in the same
///                     order. Undefined tensors mean that there are no objects.
/// \throws c10::ValueError if the number of predictions is wrong, a tensor has
///         the wrong shape or dtype, a class does not exist, a number is NaN or
///         infinite, or two images have the same id; IoError.
void write_coco_predictions(
    const std::filesystem::path& file,
    const BoxAnnotations& annotations,
    const std::vector<ImageDetections>& predictions);

/// Writes annotations as a COCO instances file (JSON), which `read_coco` and
/// pycocotools can read.
///
/// Box ids start at 1. If Box::area is 0, the area of the box is written. The
/// file is replaced atomically.
///
/// \param images_folder  Folder that the names of the images are relative to.
/// \throws c10::ValueError if an image is not in the folder, a class is not in
///         annotations.classes, or two images have the same id; IoError.
void write_coco(
    const std::filesystem::path& file,
    const BoxAnnotations& annotations,
    const std::filesystem::path& images_folder);

}  // namespace tern
