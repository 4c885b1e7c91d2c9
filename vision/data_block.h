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

  /// Folders with training and validation images, inside the given one.
  std::string train = "train", valid = "valid";
  /// Fraction of all images, drawn at random, for validation. Unset: by the
  /// folders, or 0.2 if there are none.
  std::optional<double> valid_pct = {};
  /// Seed of that split and of the order of the training images.
  uint64_t seed = 42;
  /// Accepts a class without images.
  bool allow_empty = false;
  /// Follows symbolic links out of the given folder.
  bool links_outside = false;

  // ---- Transforms ----

  /// Size of the images in a batch: 128 for a square, or ImageSize{height,
  /// width}. Unset: all images must have the same size.
  std::optional<ImageSize> size = {};
  /// `decode.channels` is 3 for RGB, 1 for gray.
  DecodeOptions decode = {};
  /// Normalization on the device. `stats::none()` keeps 0..1, as fastai v1
  /// does. Pretrained models need ImageNet's; from scratch they are no worse.
  ImageStats stats = stats::imagenet();
  /// Applied to each image by the loader's workers; see `get_transforms`.
  TransformLists transforms = {};
  /// Applied to each training batch on the device instead; see `augment_batch`.
  Transforms batch_transforms = {};
  /// How images are resized to `size`, and how they are padded. With
  /// `ResizeMethod::crop` a transform such as `rand_crop` may choose the
  /// position; the default is the center.
  ResizeMethod resize = ResizeMethod::crop;
  Padding padding = Padding::reflection;
  BadImagePolicy bad_images = BadImagePolicy::error();
  /// Logs validation images that are training images too, by their bytes: they
  /// make validation too optimistic. Reads all files of equal size; see
  /// `duplicate_images`.
  bool report_duplicates = false;

  // ---- Loading ----

  int64_t batch_size = 64;
  /// 0: `batch_size`.
  int64_t valid_batch_size = 0;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// How long to wait for a batch before failing with an error that names the
  /// image; 0: no limit.
  std::chrono::milliseconds timeout{0};
  /// Draws training images so that every class is equally frequent. An epoch
  /// has as many draws as there are images; some occur twice, some never.
  bool balance_classes = false;
  /// The order of the training images, as DataLoaderOptions::sampler: indices
  /// are those of the training images, in the order of `ImageDataset::paths`.
  /// Null: reshuffled every epoch. Not together with `balance_classes`.
  std::shared_ptr<const Sampler> sampler = {};
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};

  // ---- Output ----

  /// Receives what is said of the images: links that lead nowhere, duplicates,
  /// bad images that are skipped (from the loaders' threads, see SinkImpl),
  /// shards that are left out. Empty: `terminal()`. Data have a sink of their
  /// own, since they are made before the Learner and used without one too.
  Sink sink = {};
};

/// Describes an image dataset: the items, the split into training and
/// validation images, the labels.
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
  /// Class names in the order of their indices; empty: those of the training
  /// images, sorted. For masks the names only; empty: indices are not checked.
  /// For numbers and points their names, which may be empty.
  std::vector<std::string> classes = {};
  /// Returns the boxes of an image: targets are then those of BoxTargets, and
  /// `label` and `target` are not used.
  BoxLabeller boxes = {};
  /// Returns the points of an image: targets are then those of PointTargets, and
  /// `label` and `target` are not used.
  PointLabeller points = {};
  /// How boxes and points are read and follow their image.
  AnnotationOptions annotations = {};

  /// \throws DataError naming the file or row, for a label that is missing, not
  ///         a number or unknown in the training images, and for a split that
  ///         leaves one side empty. c10::ValueError for a bad option.
  DataBunch bunch(const ImageDataBunchOptions& options = {}) const;
};

/// Returns a DataBunch for each fold of a cross-validation over all items of a
/// block; its `split` is not used.
///
///   for (const DataBunch& fold :
///        k_folds(pets, 5, {.size = 224}, {.stratified = true})) {
///     Learner learn = vision_learner(fold, resnet18);
///     learn.fine_tune(3);
///   }
///
/// As `k_folds` of a DataBunch, with ImageDatasets: training images have the
/// training transforms, validation images those of validation, and the classes
/// are those of all items. Items of one path stay together. Stratified by the
/// images' class, which needs TargetKind::category; no image is decoded.
///
/// \throws c10::ValueError as `k_folds` of a DataBunch, and with
///         `options.sampler`; DataError as `DataBlock::bunch`.
std::vector<DataBunch> k_folds(
    const DataBlock& block,
    int64_t folds,
    const ImageDataBunchOptions& options = {},
    const KFoldOptions& fold_options = {});

/// Creates datasets and loaders of images that are split and labeled.
/// \param output       What the targets are; `classes` are then its names, unless
///                     it has some.
/// \param annotations  How batch transforms move boxes and points.
DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options,
    const std::optional<OutputInfo>& output = {},
    const AnnotationOptions& annotations = {});

}  // namespace tern
