#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"

namespace tern {

struct ShardImagesOptions {
  /// Prefix of the shards: "train-000000.tar".
  std::string name = "train";
  /// Limits on the images and bytes of a shard.
  int64_t max_samples = 10'000;
  int64_t max_bytes = int64_t{1} << 30;
  /// Shuffles the images first; otherwise a shard would hold few classes.
  bool shuffle = true;
  uint64_t seed = 42;
  /// Number of threads, each writing its own shard; -1: one per core.
  int64_t workers = -1;
};

struct ShardedImages {
  /// The files, in order.
  std::vector<std::filesystem::path> shards;
  std::vector<std::string> classes;
  int64_t images = 0, bytes = 0;
};

/// Writes the images of `folder/CLASS/**` into tar shards in WebDataset's
/// layout in `out`: "cat/00000012.jpg", the unchanged file, and
/// "cat/00000012.cls" with its class index.
///
/// Also writes SHA256SUMS, for `sha256sum -c`, and classes.txt. An existing
/// classes.txt in `out` is kept, so that training and validation shards agree.
/// The same folder and options produce the same bytes.
///
/// \param sink  Receives the progress; empty: `terminal()`.
/// \throws DataError as `scan_image_folder`, and if `out` has shards of that
///         name; IoError; c10::ValueError for a bad option. Shards that exist
///         then are complete.
ShardedImages shard_images(
    const std::filesystem::path& folder,
    const std::filesystem::path& out,
    const ShardImagesOptions& options = {},
    const Sink& sink = {});

/// Writes images with boxes: "00000012.jpg", the unchanged file, and
/// "00000012.json" with its size and boxes,
///
///   {"width":640,"height":480,"boxes":[
///   {"bbox":[10,20.5,30,40],"label":"car","crowd":true,"area":12.5}]}
///
/// bbox is x1, y1, x2, y2. Where the annotations give no size there is no width
/// and height; `crowd` is left out where it is false, `area` where it is 0.
/// `ImageDataBunch::from_tar` reads them with `ImageTar::boxes` = "json".
///
/// Also writes SHA256SUMS and classes.txt, as above; without
/// `annotations.classes` the classes are the labels of all boxes, sorted.
///
/// \throws DataError naming the image of a box that is not finite, has no size
///         or is of another class than those of classes.txt, or of a file that
///         has not the suffix of an image; and as above.
ShardedImages shard_images(
    const BoxAnnotations& annotations,
    const std::filesystem::path& out,
    const ShardImagesOptions& options = {},
    const Sink& sink = {});

/// Verifies all files that SHA256SUMS of a folder lists.
/// \param sink  Receives the progress; empty: `terminal()`.
/// \return Number of files.
/// \throws DataError naming a file that has changed or is missing; IoError.
int64_t verify_shards(
    const std::filesystem::path& folder,
    const Sink& sink = {});

/// File with the class names beside shards of images.
inline constexpr const char* kClassListName = "classes.txt";

/// Reads the class names in a file, one per line; empty if there is no such
/// file.
/// \throws DataError for an empty or repeated name; IoError.
std::vector<std::string> read_class_list(const std::filesystem::path& file);

}  // namespace tern
