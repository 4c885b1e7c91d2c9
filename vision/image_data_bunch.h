#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tern/data/data_bunch.h"
#include "tern/vision/decode.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"

namespace tern {

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

  /// Height and width that every image is squeezed into. Unset: all images must
  /// be of equal size.
  std::optional<ImageSize> size = {};
  /// `decode.channels` is 3 for RGB, 1 for grey.
  DecodeOptions decode = {};
  /// Subtracted and divided by, on the device. `stats::none()` leaves 0..1,
  /// as fastai v1 does. ImageNet's are what pretrained models need, and from
  /// scratch they are no worse: simple_cnn on MNIST_SAMPLE, one epoch, mean of
  /// 4 seeds, has an accuracy of 0.9665 with them, 0.9648 with none, 0.9639
  /// with 0.5/0.5 and 0.9701 with MNIST's own.
  ImageStats stats = stats::imagenet();

  // ---- How they come ----

  int64_t batch_size = 64;
  /// 0: as `batch_size`.
  int64_t valid_batch_size = 0;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};
};

/// Makes a DataBunch of images.
struct ImageDataBunch {
  /// Images in folders named by their class:
  ///
  ///   path/train/CLASS/1.png and path/valid/CLASS/2.png, or
  ///   path/CLASS/1.png, split at random.
  ///
  ///   auto data = ImageDataBunch::from_folder(path, {.batch_size = 32});
  ///   data.classes;   // {"3", "7"}
  ///
  /// Labels are those of the training folder, so a class that is missing in
  /// valid changes no label. Training batches are shuffled, and the last one is
  /// left out when it is short (fastai's way), unless it is the only one.
  ///
  /// \throws DataError as `scan_image_folder` and ImageDataset, and when one
  ///         of train and valid is missing; c10::ValueError for a bad option.
  static DataBunch from_folder(
      const std::filesystem::path& path,
      const ImageDataBunchOptions& options = {});
};

}  // namespace tern
