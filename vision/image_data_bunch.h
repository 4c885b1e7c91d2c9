#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/data/shards/tar_shards.h"
#include "tern/vision/data_block.h"

namespace tern {

/// Columns of a table of images.
struct ImageCsv {
  std::string file = "labels.csv";
  /// Folder that its paths are relative to, inside the given one.
  std::string folder = "";
  /// Empty: the first column holds the paths, the second the labels.
  std::string path_column = "", label_column = "";
  /// Separator of the cells: ',', ';' or '\t'.
  char delimiter = ',';
  /// Whether the first line has the names of the columns; without them they are
  /// called "0", "1" and so on. Unset: true, unless the first cell is the path of
  /// an existing image.
  std::optional<bool> header = {};
  /// Separator of several labels in a cell, such as " "; empty: one class per
  /// image.
  std::string label_delimiter = "";
  /// Column that marks validation images; empty: a random split.
  std::string valid_column = "";
  /// Appended to each path, such as ".jpg".
  std::string suffix = "";
  /// Unset: category, or multi_category with a `label_delimiter`, which
  /// separates several numbers too.
  std::optional<TargetKind> target = {};
};

/// Fields of tar shards of images.
struct ImageTar {
  /// The image is the first of these fields that a sample has.
  std::vector<std::string> image =
      {"jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "ppm", "pgm"};
  /// Field with the class index.
  std::string label = "cls";
  /// Field with the boxes of the image, such as "json", as `shard_images` writes
  /// it; targets are then those of BoxTargets, and `label` is not used. Empty:
  /// there are none.
  std::string boxes = "";
  /// How boxes are read and follow their image.
  AnnotationOptions annotations = {};
  /// Class names by index. Empty: the lines of classes.txt beside the first
  /// training shard, which tern-shard writes, or the indices themselves; of
  /// boxes else the labels that the training shards have, sorted.
  std::vector<std::string> classes = {};
  /// Size of the shuffle buffer, for shards on a slow disk; see
  /// BufferedSampler. 0: shuffles all training images.
  int64_t shuffle_buffer = 0;
  /// Without a sink in it, warnings go to that of ImageDataBunchOptions.
  ShardSetOptions shards = {};
};

/// Creates a DataBunch of images. Each function is a shorthand for a DataBlock.
struct ImageDataBunch {
  /// Images in one folder per class:
  ///
  ///   path/train/CLASS/1.png and path/valid/CLASS/2.png, or
  ///   path/CLASS/1.png, split at random.
  ///
  ///   auto data = ImageDataBunch::from_folder(path, {.batch_size = 32});
  ///   data.classes;   // {"3", "7"}
  ///
  /// Classes are those of the training folder, so a class without validation
  /// images changes no index. Training batches are shuffled; an incomplete last
  /// one is dropped, as in fastai, unless it is the only one.
  ///
  /// \throws DataError as `scan_image_folder` and ImageDataset, and if only one
  ///         of train and valid exists; c10::ValueError for a bad option.
  static DataBunch from_folder(
      const std::filesystem::path& path,
      const ImageDataBunchOptions& options = {});

  /// Images and labels from a table in `path`.
  ///
  ///   ImageDataBunch::from_csv("planet", {.file = "train.csv",
  ///       .folder = "jpg", .label_delimiter = " ", .suffix = ".jpg"});
  ///
  /// \throws DataError naming the wrong row.
  static DataBunch from_csv(
      const std::filesystem::path& path,
      const ImageCsv& csv = {},
      const ImageDataBunchOptions& options = {});

  /// All images below `path`, labeled by the first group of a regular
  /// expression that is matched against their paths.
  ///
  ///   ImageDataBunch::from_name_re("pets/images", R"(/([^/]+)_\d+\.jpg$)");
  static DataBunch from_name_re(
      const std::filesystem::path& path,
      const std::string& pattern,
      const ImageDataBunchOptions& options = {});

  /// Files with one label each, split at random. Whole numbers are classes, in
  /// their order; floating ones are numbers to predict, TargetKind::number.
  static DataBunch from_lists(
      const std::vector<std::string>& paths,
      const std::vector<std::string>& labels,
      const ImageDataBunchOptions& options = {});
  template <class Number>
    requires std::is_arithmetic_v<Number>
  static DataBunch from_lists(
      const std::vector<std::string>& paths,
      const std::vector<Number>& labels,
      const ImageDataBunchOptions& options = {}) {
    return from_items(items_at(paths), labels, options);
  }

  /// Images in memory with one label each, split at random; labels as for
  /// `from_lists`.
  ///
  ///   std::vector<cv::Mat> images;
  ///   std::vector<std::string> labels;
  ///   auto data = ImageDataBunch::from_images(images, labels, {.size = 128});
  ///
  /// \param images  std::vector<cv::Mat> or a tensor [N, H, W, C], as for
  ///                `items_from_images`, which makes items for a DataBlock.
  /// \throws c10::ValueError for an image of another kind, or another number of
  ///         labels.
  template <class Images, class Label>
  static DataBunch from_images(
      const Images& images,
      const std::vector<Label>& labels,
      const ImageDataBunchOptions& options = {}) {
    return from_items(items_from_images(images), labels, options);
  }
  /// \param images  [N, H, W] or [N, H, W, 1 or 3] kByte, RGB.
  /// \param labels  [N]: whole numbers are classes, floating ones are numbers to
  ///                predict.
  static DataBunch from_images(
      const torch::Tensor& images,
      const torch::Tensor& labels,
      const ImageDataBunchOptions& options = {});

  /// Images in tar shards in WebDataset's layout, read in place: 0001.jpg and
  /// 0001.cls are one sample.
  ///
  ///   ImageDataBunch::from_tar({"train-{000..009}.tar"}, {"valid-000.tar"});
  ///
  /// \param train, valid  See `expand_shards`; URLs are downloaded. Without
  ///                      `valid`, a fraction options.valid_pct of the images
  ///                      is drawn.
  /// With boxes 0001.jpg and 0001.json are one sample:
  ///
  ///   ImageDataBunch::from_tar({"train-{000..009}.tar"}, {"valid-000.tar"},
  ///       {.boxes = "json"}, {.size = 320, .resize = ResizeMethod::pad});
  ///
  /// \throws as `TarShards::open`; DataError for a sample without image or
  ///         label, or with an invalid label; naming sample and field for boxes
  ///         that are damaged, reach out of the image, have no size or are of
  ///         an unknown class.
  static DataBunch from_tar(
      const std::vector<std::string>& train,
      const std::vector<std::string>& valid,
      const ImageTar& tar = {},
      const ImageDataBunchOptions& options = {});

 private:
  static ImageItems items_at(const std::vector<std::string>& paths);
  static DataBunch from_items(
      ImageItems items,
      const std::vector<std::string>& labels,
      const ImageDataBunchOptions& options);
  template <class Number>
    requires std::is_arithmetic_v<Number>
  static DataBunch from_items(
      ImageItems&& items,
      const std::vector<Number>& labels,
      const ImageDataBunchOptions& options) {
    const std::vector<double> numbers(labels.begin(), labels.end());
    return from_numbers(
        std::move(items),
        numbers,
        std::is_integral_v<Number>,
        options);
  }
  static DataBunch from_numbers(
      ImageItems items,
      const std::vector<double>& numbers,
      bool are_classes,
      const ImageDataBunchOptions& options);
};

}  // namespace tern
