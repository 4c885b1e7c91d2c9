#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "tern/data/data_bunch.h"
#include "tern/data/k_folds.h"
#include "tern/data/sampler.h"
#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_items.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/move_targets.h"

namespace tern {

/// Options of DataBlock and ImageDataBunch.
struct ImageDataBunchOptions {
  // ---- Images ----

  /// Names of the subfolders with training and validation images.
  std::string train = "train", valid = "valid";
  /// Fraction of all images that a random split uses for validation. Unset:
  /// uses the subfolders as the split, or 0.2 if they do not exist.
  std::optional<double> valid_pct = {};
  /// Seed of the random split and of the order of the training images.
  uint64_t seed = 42;
  /// Accepts a class without images.
  bool allow_empty = false;
  /// Follows symbolic links to targets outside the given folder.
  bool links_outside = false;

  // ---- Transforms ----

  /// Size of the images in a batch: 128 for a square, or ImageSize{height,
  /// width}. Unset: all images must have the same size.
  std::optional<ImageSize> size = {};
  /// `decode.channels` is 3 for RGB, 1 for gray.
  DecodeOptions decode = {};
  /// Statistics for the normalization on the device. `stats::none()` keeps
  /// pixels in 0..1, as fastai v1 does. Pretrained models need ImageNet's
  /// statistics; they work equally well for training from scratch.
  ImageStats stats = stats::imagenet();
  /// Transforms that the loader's workers apply to each image; see
  /// `get_transforms`.
  TransformLists transforms = {};
  /// Transforms that are applied to each training batch on the device instead;
  /// see `augment_batch`.
  Transforms batch_transforms = {};
  /// How images are resized to `size` and padded. `ResizeMethod::crop` crops
  /// the center unless a transform such as `rand_crop` chooses a different
  /// position.
  ResizeMethod resize = ResizeMethod::crop;
  /// Pixels beyond the image. Unset: `reflection`; for boxes and points
  /// `zeros`, because a reflected object has no box.
  std::optional<Padding> padding = {};
  BadImagePolicy bad_images = BadImagePolicy::error();
  /// Warns about validation images whose files are identical to training
  /// images, which makes validation too optimistic. Reads the files whose size
  /// occurs in both sets; see `duplicate_images`.
  bool report_duplicates = false;

  // ---- Loading ----

  int64_t batch_size = 64;
  /// Batch size of validation; 0: `batch_size`.
  int64_t valid_batch_size = 0;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// Timeout for a batch, after which an error names the image; 0: no limit.
  std::chrono::milliseconds timeout{0};
  /// Samples training images with replacement so that all classes are equally
  /// frequent. The number of images per epoch is unchanged; some images are
  /// drawn several times, others never.
  bool balance_classes = false;
  /// Determines the order of the training images, see
  /// DataLoaderOptions::sampler. Its indices are positions in the training
  /// images' `ImageDataset::paths`. Null: shuffles in every epoch. Cannot be
  /// combined with `balance_classes`.
  std::shared_ptr<const Sampler> sampler = {};
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};

  // ---- Output ----

  /// Receives warnings about the images: dangling links, duplicates, skipped
  /// bad images (from the loaders' threads, see SinkImpl) and skipped shards.
  /// Empty: `terminal()`. Data has a separate sink because it is created before
  /// the Learner and can be used without one.
  Sink sink = {};
};

/// Describes an image dataset: its items, how they are split into training and
/// validation images, and their labels.
///
///   DataBlock pets{
///       .items = items_from_folder("pets/images"),
///       .split = split_at_random(0.2),
///       .label = label_from_re(R"(/([^/]+)_\d+\.jpg$)")};
///   DataBunch data = pets.bunch(
///       {.size = 224,
///        .transforms = get_transforms(),
///        .resize = ResizeMethod::crop});
///
/// With boxes or points instead of labels:
///
///   BoxAnnotations coco = read_coco("instances.json", "images");
///   DataBlock objects{
///       .items = coco.items(),
///       .classes = coco.classes,
///       .boxes = coco.labeller()};
struct DataBlock {
  ImageItems items = {};
  Splitter split = split_at_random();
  Labeller label = label_from_folder();
  TargetKind target = TargetKind::category;
  /// Class names in the order of their indices; empty: the labels of the
  /// training images, sorted. With masks, these are the names of the pixel
  /// classes; empty: pixel classes are not checked. For regression and points,
  /// these are the names of the values or points; may be empty.
  std::vector<std::string> classes = {};
  /// Returns the boxes of an image. If set, the targets are BoxTargets, and
  /// `label` and `target` are not used.
  BoxLabeller boxes = {};
  /// Returns the points of an image. If set, the targets are PointTargets, and
  /// `label` and `target` are not used.
  PointLabeller points = {};
  /// How boxes and points are read and transformed with their image.
  AnnotationOptions annotations = {};

  /// Creates the datasets and their loaders.
  /// \throws DataError naming the file or row, if a label is missing, is not a
  ///         number, or does not occur in the training images, or if the split
  ///         leaves training or validation without images; c10::ValueError for
  ///         an invalid option.
  DataBunch bunch(const ImageDataBunchOptions& options = {}) const;
};

/// Returns a DataBunch for each fold of a cross-validation over all items of a
/// block. The `split` of the block is not used.
///
///   for (const DataBunch& fold :
///        k_folds(pets, 5, {.size = 224}, {.stratified = true})) {
///     Learner learn = vision_learner(fold, resnet18);
///     learn.fine_tune(3);
///   }
///
/// Works like `k_folds` of a DataBunch. In each fold, training images get the
/// training transforms and validation images the validation transforms. The
/// classes are collected from all items. Items with the same path stay in the
/// same fold. Stratification uses the classes of the images, which requires
/// TargetKind::category. No image is decoded.
///
/// \throws the errors of `k_folds` of a DataBunch and of `DataBlock::bunch`;
///         c10::ValueError if `options.sampler` is set.
std::vector<DataBunch> k_folds(
    const DataBlock& block,
    int64_t folds,
    const ImageDataBunchOptions& options = {},
    const KFoldOptions& fold_options = {});

/// Creates the datasets and loaders for images that are already split and
/// labeled.
/// \param output       Describes the targets. If it has no names, `classes` are
///                     used as its names.
/// \param annotations  How batch transforms transform boxes and points.
DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options,
    const std::optional<OutputInfo>& output = {},
    const AnnotationOptions& annotations = {});

}  // namespace tern
