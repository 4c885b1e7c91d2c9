#pragma once

#include <filesystem>
#include <vector>

#include <torch/types.h>

#include "tern/vision/datasets/annotations.h"

namespace tern {

/// The objects that a model has found in an image. D are as many as the fullest
/// image of a batch has; the others are filled up.
struct ImageDetections {
  /// [D, 4], floating: left, upper, right and lower edge in pixels of the image
  /// as it is annotated.
  torch::Tensor boxes;
  /// [D], floating: how sure the model is, from 0 to 1.
  torch::Tensor scores;
  /// [D] kLong: index of the class; -1: no object.
  torch::Tensor labels;
};

/// Writes detections as a results file of COCO (JSON), which pycocotools'
/// `loadRes` and COCO's evaluation server read: a list of image_id,
/// category_id, bbox [x, y, w, h] and score.
///
///   BoxAnnotations coco = read_coco("instances_val2017.json", "val2017");
///   std::vector<ImageDetections> found(coco.images.size());
///   ...
///   write_coco_predictions("results.json", coco, found);
///
/// The ids are those of `annotations`. The file is replaced as a whole. Of
/// pycocotools 2.0, `loadRes` cannot read a file without any detection.
///
/// \param predictions  One for each of annotations.images, in that order; those
///                     without tensors have no objects.
/// \throws c10::ValueError if there are more or fewer, a tensor is not of its
///         shape or dtype, a class does not exist, a number is NaN or infinite,
///         or two images have one id; IoError.
void write_coco_predictions(
    const std::filesystem::path& file,
    const BoxAnnotations& annotations,
    const std::vector<ImageDetections>& predictions);

/// Writes annotations as an instances file of COCO (JSON), which `read_coco`
/// and pycocotools read.
///
/// Boxes are numbered from 1 on; the area of one that has none is that of the
/// box. The file is replaced as a whole.
///
/// \param images_folder  Folder that the names of the images are relative to.
/// \throws c10::ValueError if an image is not in the folder, a class is not
///         among annotations.classes, or two images have one id; IoError.
void write_coco(
    const std::filesystem::path& file,
    const BoxAnnotations& annotations,
    const std::filesystem::path& images_folder);

}  // namespace tern
