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
  /// Subfolder that the paths in the table are relative to.
  std::string folder = "";
  /// Names of the columns with paths and labels; empty: the first and the
  /// second column.
  std::string path_column = "", label_column = "";
  /// Separator of the cells: ',', ';' or '\t'.
  char delimiter = ',';
  /// True if the first line contains the column names; otherwise the columns
  /// are named "0", "1" and so on. Unset: true, unless the first cell is the
  /// path of an existing image.
  std::optional<bool> header = {};
  /// Separator of multiple labels in a cell, such as " "; empty: one class per
  /// image.
  std::string label_delimiter = "";
  /// Column that marks validation images; empty: a random split.
  std::string valid_column = "";
  /// Text that is appended to each path, such as ".jpg".
  std::string suffix = "";
  /// Unset: category, or multi_category with a `label_delimiter`. The
  /// `label_delimiter` can also separate several numbers.
  std::optional<TargetKind> target = {};
};

/// Fields of tar shards of images.
struct ImageTar {
  /// Fields that may contain the image; the first one that a sample has is
  /// used.
  std::vector<std::string> image =
      {"jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "ppm", "pgm"};
  /// Field with the class index.
  std::string label = "cls";
  /// Field with the boxes of the image, such as "json", in the format of
  /// `shard_images`. If set, the targets are BoxTargets, and `label` is not
  /// used. Empty: no boxes.
  std::string boxes = "";
  /// Field with the points of the image, likewise. If set, the targets are
  /// PointTargets, and `classes` are the names of the points, if any.
  std::string points = "";
  /// How boxes are read and transformed with their image.
  AnnotationOptions annotations = {};
  /// Class names by index. Empty: the lines of classes.txt in the folder of the
  /// first training shard, which tern-shard writes. Without such a file, the
  /// class indices themselves, or for boxes the sorted labels of the training
  /// shards.
  std::vector<std::string> classes = {};
  /// Size of the shuffle buffer, for shards on a slow disk; see
  /// BufferedSampler. 0: shuffles all training images.
  int64_t shuffle_buffer = 0;
  /// If its sink is empty, warnings go to the sink of ImageDataBunchOptions.
  ShardSetOptions shards = {};
};

/// Functions that create a DataBunch of images. Each is a shorthand for a
/// DataBlock.
struct ImageDataBunch {
  /// Creates a DataBunch from images in one folder per class:
  ///
  ///   path/train/CLASS/1.png and path/valid/CLASS/2.png, or
  ///   path/CLASS/1.png, split at random.
  ///
  ///   auto data = ImageDataBunch::from_folder(path, {.batch_size = 32});
  ///   data.classes;   // {"3", "7"}
  ///
  /// The classes are the folders of the training images, so a class without
  /// validation images does not change the class indices. Training batches are
  /// shuffled. As in fastai, an incomplete last batch is dropped, unless it is
  /// the only batch.
  ///
  /// \throws the errors of `scan_image_folder` and ImageDataset; DataError if
  ///         only one of train and valid exists; c10::ValueError for an invalid
  ///         option.
  static DataBunch from_folder(
      const std::filesystem::path& path,
      const ImageDataBunchOptions& options = {});

  /// Creates a DataBunch from a table of images and labels in the folder
  /// `path`.
  ///
  ///   ImageDataBunch::from_csv("planet", {.file = "train.csv",
  ///       .folder = "jpg", .label_delimiter = " ", .suffix = ".jpg"});
  ///
  /// \throws DataError naming the invalid row.
  static DataBunch from_csv(
      const std::filesystem::path& path,
      const ImageCsv& csv = {},
      const ImageDataBunchOptions& options = {});

  /// Creates a DataBunch from all images below `path`. The label of an image is
  /// the first capture group of a regular expression matched against its path.
  ///
  ///   ImageDataBunch::from_name_re("pets/images", R"(/([^/]+)_\d+\.jpg$)");
  static DataBunch from_name_re(
      const std::filesystem::path& path,
      const std::string& pattern,
      const ImageDataBunchOptions& options = {});

  /// Creates a DataBunch from files with one label each, split at random.
  /// Integer labels are classes in numerical order; floating-point labels are
  /// regression targets (TargetKind::number).
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

  /// Creates a DataBunch from images in memory with one label each, split at
  /// random. Labels are as in `from_lists`.
  ///
  ///   std::vector<cv::Mat> images;
  ///   std::vector<std::string> labels;
  ///   auto data = ImageDataBunch::from_images(images, labels, {.size = 128});
  ///
  /// \param images  std::vector<cv::Mat> or a tensor [N, H, W, C]; see
  ///                `items_from_images`, which creates items for a DataBlock.
  /// \throws c10::ValueError if an image has an unsupported dtype, or if the
  ///         number of labels differs from the number of images.
  template <class Images, class Label>
  static DataBunch from_images(
      const Images& images,
      const std::vector<Label>& labels,
      const ImageDataBunchOptions& options = {}) {
    return from_items(items_from_images(images), labels, options);
  }
  /// Creates a DataBunch from tensors of images and labels, split at random.
  /// \param images  [N, H, W] or [N, H, W, 1 or 3] kByte, RGB.
  /// \param labels  [N]: integers are classes, floating-point labels are
  ///                regression targets.
  static DataBunch from_images(
      const torch::Tensor& images,
      const torch::Tensor& labels,
      const ImageDataBunchOptions& options = {});

  /// Creates a DataBunch from images in tar shards in WebDataset's layout,
  /// which are read in place: 0001.jpg and 0001.cls are one sample.
  ///
  ///   ImageDataBunch::from_tar({"train-{000..009}.tar"}, {"valid-000.tar"});
  ///
  /// With boxes, 0001.jpg and 0001.json are one sample:
  ///
  ///   ImageDataBunch::from_tar({"train-{000..009}.tar"}, {"valid-000.tar"},
  ///       {.boxes = "json"}, {.size = 320, .resize = ResizeMethod::pad});
  ///
  /// \param train, valid  See `expand_shards`; URLs are downloaded. If `valid`
  ///                      is empty, a fraction `options.valid_pct` of the
  ///                      images is drawn for validation.
  /// \throws the errors of `TarShards::open`; DataError if a sample has no
  ///         image or label, or an invalid label, and naming sample and field
  ///         if boxes are damaged, reach beyond the image, have no area or have
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
