#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/data/shard_files.h"
#include "tern/vision/make_bunch.h"

namespace tern {

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
