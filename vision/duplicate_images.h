#pragma once

#include <string>
#include <vector>

namespace tern {

/// An image to check with that is to learn from too.
struct DuplicateImage {
  std::string valid, train;
  /// One file under two names, not two files of equal bytes.
  bool is_link = false;
};

/// Finds the files of `valid` that are in `train` too, in the order of `valid`,
/// each with the first one that equals it. Reads, on all cores, only files
/// whose size occurs in both lists.
///
///   for (const auto& pair : duplicate_images(train_paths, valid_paths)) ...
///
/// \throws IoError if a file cannot be read.
std::vector<DuplicateImage> duplicate_images(
    const std::vector<std::string>& train,
    const std::vector<std::string>& valid);

}  // namespace tern
