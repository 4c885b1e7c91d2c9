#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/data/shard_files.h"
#include "tern/vision/bad_images.h"
#include "tern/vision/decode.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/transforms/transform.h"

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

/// Where a table of images has what.
struct ImageCsv {
  std::string file = "labels.csv";
  /// Where the paths in it begin, under the given folder.
  std::string folder = "";
  /// Empty: the first column holds the paths, the second the labels.
  std::string path_column = "", label_column = "";
  /// Between several labels in a cell, such as " "; empty: one class each.
  std::string label_delimiter = "";
  /// Says which images are to check with; empty: drawn at random.
  std::string valid_column = "";
  /// Follows each path, such as ".jpg".
  std::string suffix = "";
};

/// Where tar shards of images have what.
struct ImageTar {
  /// The image: the first of these fields that a sample has.
  std::vector<std::string> image = {"jpg", "jpeg", "png", "webp", "bmp", "tif"};
  /// The field with the number of the class.
  std::string label = "cls";
  /// The names of the classes, by their numbers. Empty: the lines of the file
  /// classes.txt beside the first training shard, which tern-shard writes, or
  /// the numbers themselves.
  std::vector<std::string> classes = {};
  /// Mixes the training images of neighbouring places only, so many at a time,
  /// for shards on a slow disk; see BufferedSampler. 0: all of them.
  int64_t shuffle_buffer = 0;
  ShardSetOptions shards = {};
};

/// Makes a DataBunch of images. Each of these is a short way of writing a
/// DataBlock.
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

  /// Images and labels from a table in `path`.
  ///
  ///   ImageDataBunch::from_csv("planet", {.file = "train.csv",
  ///       .folder = "jpg", .label_delimiter = " ", .suffix = ".jpg"});
  ///
  /// \throws DataError naming the row that is wrong.
  static DataBunch from_csv(
      const std::filesystem::path& path,
      const ImageCsv& csv = {},
      const ImageDataBunchOptions& options = {});

  /// All images under `path`, at any depth, labelled by what the first group of
  /// a regular expression finds in their path.
  ///
  ///   ImageDataBunch::from_name_re("pets/images", R"(/([^/]+)_\d+\.jpg$)");
  static DataBunch from_name_re(
      const std::filesystem::path& path,
      const std::string& pattern,
      const ImageDataBunchOptions& options = {});

  /// Files with a label each, split at random.
  static DataBunch from_lists(
      const std::vector<std::string>& paths,
      const std::vector<std::string>& labels,
      const ImageDataBunchOptions& options = {});

  /// Images in tar shards of WebDataset's layout, read in place: 0001.jpg and
  /// 0001.cls are one sample. All else is as for a folder of images.
  ///
  ///   ImageDataBunch::from_tar({"train-{000..009}.tar"}, {"valid-000.tar"});
  ///
  /// \param train, valid  See `expand_shards`; URLs are fetched. Without
  ///                      `valid`, options.valid_pct of the images is drawn.
  /// \throws as `TarShards::open`; DataError for a sample without image or
  ///         label, or whose label is no class.
  static DataBunch from_tar(
      const std::vector<std::string>& train,
      const std::vector<std::string>& valid,
      const ImageTar& tar = {},
      const ImageDataBunchOptions& options = {});
};

}  // namespace tern
