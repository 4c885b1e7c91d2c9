#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tern/learner/sink.h"
#include "tern/vision/decode.h"

namespace tern {

/// What happens to an image that cannot be read.
struct BadImagePolicy {
  bool skips = false;
  /// The share of the images that may be bad.
  double max_fraction = 0;

  /// Ends the training with an error that names the file.
  static BadImagePolicy error() { return {}; }
  /// Takes another image in its place, the same one for the same seed, epoch
  /// and sample, until more than this share of the images have turned out bad.
  static BadImagePolicy skip(double max_fraction = 0.01) {
    return {true, max_fraction};
  }
};

/// An image that could not be read, and why.
struct BadImage {
  std::string path, reason;
};

/// Collects bad images from many threads.
class BadImageList {
 public:
  /// Notes that an image of `total` is bad; tells the user the first time.
  /// \throws DataError with the list when there are more than `max_fraction`.
  void add(int64_t index, BadImage image, int64_t total, double max_fraction);

  /// In the order of their indices.
  std::vector<BadImage> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, BadImage> images_;
};

struct VerifyImagesOptions {
  DecodeOptions decode = {};
  /// Removes the bad files.
  bool remove = false;
  /// Threads; -1: one for each core.
  int64_t workers = -1;
  /// Sees the progress; null: nobody.
  Sink sink = {};
};

/// What `verify_images` found.
struct ImageReport {
  int64_t checked = 0, removed = 0;
  /// In the order of the paths.
  std::vector<BadImage> bad = {};
};

/// Decodes every image and lists those that fail.
///
///   ImageReport report = verify_images("photos");
///   for (const BadImage& bad : report.bad) std::puts(bad.reason.c_str());
///
/// Finds cut files and wrong checksums; in JPEG, WebP and BMP, which have none,
/// most flipped bits decode to other pixels and cannot be seen.
///
/// \throws IoError if a file that shall be removed cannot be.
ImageReport verify_images(
    const std::vector<std::string>& paths,
    const VerifyImagesOptions& options = {});
/// All images under a folder, at any depth.
ImageReport verify_images(
    const std::filesystem::path& folder,
    const VerifyImagesOptions& options = {});

/// Writes the SHA-256 of every image below a folder, in the form of the
/// program `sha256sum`, which can check it too. No decoder sees a flipped bit
/// of a JPEG, WebP or BMP; this list does.
///
///   write_image_manifest("photos", "photos.sha256");    // once
///   for (const BadImage& bad : check_image_manifest("photos",
///   "photos.sha256"))
///     fmt::print("{}: {}\n", bad.path, bad.reason);
///
/// \return  How many images it lists; their paths are relative to `folder`.
/// \throws DataError, IoError as `find_image_files`, or if a file cannot be
///         read or written.
int64_t write_image_manifest(
    const std::filesystem::path& folder,
    const std::filesystem::path& manifest);

/// The images that are not as the manifest says: changed, missing, or not in
/// it; in the order of their paths.
/// \throws DataError if the manifest is damaged; IoError.
std::vector<BadImage> check_image_manifest(
    const std::filesystem::path& folder,
    const std::filesystem::path& manifest);

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
