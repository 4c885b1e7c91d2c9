#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "tern/data/data_bunch.h"
#include "tern/vision/decode/bad_images.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/image_targets.h"
#include "tern/vision/transforms/transform.h"

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
  /// `decode.channels` is 3 for RGB, 1 for grey.
  DecodeOptions decode = {};
  /// Normalisation on the device. `stats::none()` keeps 0..1, as fastai v1
  /// does. Pretrained models need ImageNet's; from scratch they are no worse:
  /// simple_cnn on MNIST_SAMPLE, one epoch, mean of 4 seeds, has an accuracy of
  /// 0.9665 with them, 0.9648 with none, 0.9639 with 0.5/0.5 and 0.9701 with
  /// MNIST's own.
  ImageStats stats = stats::imagenet();
  /// Applied to each image by the loader's workers; see `get_transforms`.
  TransformLists transforms = {};
  /// Applied to each training batch on the device instead; see `augment_batch`.
  Transforms batch_transforms = {};
  /// How images are resized to `size`, and how they are padded. With
  /// `ResizeMethod::crop` a transform such as `rand_crop` may choose the
  /// position; the default is the centre.
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
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};
};

/// Images and their targets.
struct TargetedImages {
  std::vector<std::string> paths;
  std::shared_ptr<const ImageTargets> targets;
  /// Null: `paths` are files.
  std::shared_ptr<const ImageSource> source = nullptr;
};

/// Creates data sets and loaders of images that are split and labelled.
DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options);

/// Draws a fraction `valid_pct` of `count` items for validation.
/// \throws c10::ValueError if that leaves no training or no validation items.
std::vector<Split> draw_split(int64_t count, double valid_pct, uint64_t seed);

}  // namespace tern
