#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "tern/data/data_bunch.h"
#include "tern/vision/bad_images.h"
#include "tern/vision/decode.h"
#include "tern/vision/image_file.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/image_targets.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// For DataBlock and each way of making an ImageDataBunch.
struct ImageDataBunchOptions {
  // ---- Which images ----

  /// The folders, under the given one, with images to learn from and to check
  /// with.
  std::string train = "train", valid = "valid";
  /// The share of all images, drawn at random, to check with; the folders are
  /// then put together. Unset: as the folders say, or 0.2 if there are neither.
  std::optional<double> valid_pct = {};
  /// Key of that draw and of the order of the training images.
  uint64_t seed = 42;
  /// Accepts a class without an image.
  bool allow_empty = false;
  /// Follows symbolic links that lead out of the given folder.
  bool links_outside = false;

  // ---- What becomes of them ----

  /// Size that every image gets: 128 for a square, or ImageSize{height, width}.
  /// Unset: all images must be of equal size.
  std::optional<ImageSize> size = {};
  /// `decode.channels` is 3 for RGB, 1 for grey.
  DecodeOptions decode = {};
  /// Subtracted and divided by, on the device. `stats::none()` leaves 0..1,
  /// as fastai v1 does. ImageNet's are what pretrained models need, and from
  /// scratch they are no worse: simple_cnn on MNIST_SAMPLE, one epoch, mean of
  /// 4 seeds, has an accuracy of 0.9665 with them, 0.9648 with none, 0.9639
  /// with 0.5/0.5 and 0.9701 with MNIST's own.
  ImageStats stats = stats::imagenet();
  /// Done for each image by the loader's workers; see `get_transforms`.
  TransformLists transforms = {};
  /// Done for each training batch on the device instead; see `augment_batch`.
  Transforms batch_transforms = {};
  /// How an image gets `size`, and what is seen beyond its edge. As fastai, it
  /// keeps its proportions; of `ResizeMethod::crop` a transform such as
  /// `rand_crop` may choose the place, else it is the middle.
  ResizeMethod resize = ResizeMethod::crop;
  Padding padding = Padding::reflection;
  BadImagePolicy bad_images = BadImagePolicy::error();
  /// Tells of images to check with that are among those to learn from too, by
  /// their bytes: a validation that is better than the model. Reads all files
  /// whose sizes agree; see `duplicate_images`.
  bool report_duplicates = false;

  // ---- How they come ----

  int64_t batch_size = 64;
  /// 0: as `batch_size`.
  int64_t valid_batch_size = 0;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// How long a training waits for a batch before it ends with an error that
  /// names the image; 0: for ever.
  std::chrono::milliseconds timeout{0};
  /// Draws training images so that every class comes equally often. An epoch
  /// has as many draws as there are images; some come twice, some not at all.
  bool balance_classes = false;
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};
};

/// Images with their targets.
struct TargetedImages {
  std::vector<std::string> paths;
  std::shared_ptr<const ImageTargets> targets;
  /// Null: `paths` are files.
  std::shared_ptr<const ImageSource> source = nullptr;
};

/// Data sets and loaders of images that are found, split and labelled.
DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options);

/// Draws `valid_pct` of `count` items to check with.
/// \throws c10::ValueError if that leaves nothing to check with or to learn
///         from.
std::vector<Split> draw_split(int64_t count, double valid_pct, uint64_t seed);

}  // namespace tern
