#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/learner/sink.h"

namespace tern {

struct ShardImagesOptions {
  /// What the shards are called: "train-000000.tar".
  std::string name = "train";
  /// A shard ends when it has so many images, or one more would make it larger
  /// than this.
  int64_t max_samples = 10'000;
  int64_t max_bytes = int64_t{1} << 30;
  /// Puts the images into a random order first, without which a shard would
  /// hold few classes.
  bool shuffle = true;
  uint64_t seed = 42;
  /// Threads, each with a shard of its own; -1: the number of cores.
  int64_t workers = -1;
};

struct ShardedImages {
  /// The files, in order.
  std::vector<std::filesystem::path> shards;
  std::vector<std::string> classes;
  int64_t images = 0, bytes = 0;
};

/// Writes the images of `folder/CLASS/**` into tar shards of WebDataset's
/// layout in `out`: "cat/00000012.jpg", the file as it is, and
/// "cat/00000012.cls" with the number of its class.
///
/// Beside them go SHA256SUMS, for `sha256sum -c`, and classes.txt. If `out` has
/// a classes.txt, its numbers are kept, so that shards to train and to check
/// with agree. The same folder and options give the same bytes.
///
/// \throws DataError as `scan_image_folder`, and if `out` has shards of that
///         name; IoError; c10::ValueError for a bad option. Every shard that is
///         there is whole then.
ShardedImages shard_images(
    const std::filesystem::path& folder,
    const std::filesystem::path& out,
    const ShardImagesOptions& options = {},
    const Sink& sink = nullptr);

/// Compares all files that SHA256SUMS of a folder lists with their sums.
/// \return Their number.
/// \throws DataError naming the file that is another one or gone; IoError.
int64_t verify_shards(
    const std::filesystem::path& folder,
    const Sink& sink = nullptr);

/// Where shards of images keep the names of their classes, beside them.
inline constexpr const char* kClassListName = "classes.txt";

/// The lines of a file, each the name of a class by its number; empty if there
/// is no such file.
/// \throws DataError for an empty or repeated name; IoError.
std::vector<std::string> read_class_list(const std::filesystem::path& file);

}  // namespace tern
