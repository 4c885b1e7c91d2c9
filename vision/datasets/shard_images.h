#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"

namespace tern {

struct ShardImagesOptions {
  /// Prefix of the file names: "train-000000.tar".
  std::string name = "train";
  /// Limits on the number of images and bytes per shard.
  int64_t max_samples = 10'000;
  int64_t max_bytes = int64_t{1} << 30;
  /// Shuffles the images first. Otherwise each shard contains only few classes.
  bool shuffle = true;
  uint64_t seed = 42;
  /// Number of threads, each of which writes its own shard; -1: one per core.
  int64_t workers = -1;
};

struct ShardedImages {
  /// The files, in order.
  std::vector<std::filesystem::path> shards;
  std::vector<std::string> classes;
  int64_t images = 0, bytes = 0;
};

/// Writes the images of `folder/CLASS/**` to tar shards in the folder `out`, in
/// WebDataset's layout: "cat/00000012.jpg" is the unchanged file,
/// "cat/00000012.cls" contains its class index.
///
/// Also writes SHA256SUMS, for `sha256sum -c`, and classes.txt. An existing
/// classes.txt in `out` is kept, so that training and validation shards use the
/// same class indices. The same folder and options produce the same bytes.
///
/// \param sink  Receives progress; empty: `terminal()`.
/// \throws the errors of `scan_image_folder`; DataError if `out` already
///         contains shards with this name; IoError; c10::ValueError for an
///         invalid option. After an error, the shards that exist are complete.
ShardedImages shard_images(
    const std::filesystem::path& folder,
    const std::filesystem::path& out,
    const ShardImagesOptions& options = {},
    const Sink& sink = {});

/// Writes images with boxes: "00000012.jpg" is the unchanged file,
/// "00000012.json" contains its size and boxes:
///
///   {"width":640,"height":480,"boxes":[
///   {"bbox":[10,20.5,30,40],"label":"car","crowd":true,"area":12.5}]}
///
/// `bbox` is x1, y1, x2, y2. `width` and `height` are omitted if the image size
/// is unknown, `crowd` if it is false, `area` if it is 0.
/// `ImageDataBunch::from_tar` reads the boxes if `ImageTar::boxes` is "json".
///
/// Also writes SHA256SUMS and classes.txt, as for image folders. If
/// `annotations.classes` is empty, the classes are the labels of all boxes,
/// sorted.
///
/// \throws the errors of `shard_images` for image folders; DataError naming the
///         image if a box is not finite, has no width or height, or has a class
///         that is not in classes.txt, or if a file does not have an image
///         suffix.
ShardedImages shard_images(
    const BoxAnnotations& annotations,
    const std::filesystem::path& out,
    const ShardImagesOptions& options = {},
    const Sink& sink = {});

/// Writes images with points: "00000012.jpg" is the unchanged file,
/// "00000012.json" contains its points, x and y, or null for a point that is
/// not visible:
///
///   {"points":[[30.5,40],null,[12,80.25]]}
///
/// `ImageDataBunch::from_tar` reads them if `ImageTar::points` is "json". Also
/// writes SHA256SUMS.
///
/// \param items   Image files.
/// \param points  As for `DataBlock::points`.
/// \throws the errors of `shard_images` for image folders; DataError naming the
///         image if its number of points differs from the first image's, a
///         point is not finite, or a file does not have an image suffix;
///         c10::ValueError if there are no items or an item is not a file.
ShardedImages shard_images(
    const ImageItems& items,
    const PointLabeller& points,
    const std::filesystem::path& out,
    const ShardImagesOptions& options = {},
    const Sink& sink = {});

/// Verifies all files that a folder's SHA256SUMS lists.
/// \param sink  Receives progress; empty: `terminal()`.
/// \return Number of files.
/// \throws DataError naming a file that has changed or is missing; IoError.
int64_t verify_shards(
    const std::filesystem::path& folder,
    const Sink& sink = {});

/// Name of the file with the class names, in the folder of the shards.
inline constexpr const char* kClassListName = "classes.txt";

/// Reads class names from a file, one per line. Returns an empty list if the
/// file does not exist.
/// \throws DataError for an empty or duplicated name; IoError.
std::vector<std::string> read_class_list(const std::filesystem::path& file);

}  // namespace tern
