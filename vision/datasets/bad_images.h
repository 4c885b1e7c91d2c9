#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/decode/decode.h"

namespace tern {

/// What to do with an image that cannot be read.
struct BadImagePolicy {
  bool skips = false;
  /// Largest fraction of the images that may be skipped.
  double max_fraction = 0;

  /// Throws an error that names the file.
  static BadImagePolicy error() { return {}; }
  /// In training, replaces the image with another image of the whole dataset
  /// (even if training uses only a Subset of it). The choice depends only on
  /// seed, epoch and sample. In evaluation, leaves the image out
  /// (`Batch::left_out`), because a replacement would be counted twice. Throws
  /// if more than a fraction `max_fraction` of the images is bad.
  static BadImagePolicy skip(double max_fraction = 0.01) {
    return {true, max_fraction};
  }
};

/// An image that could not be read, and why.
struct BadImage {
  std::string path, reason;
};

/// Collects bad images. Thread-safe.
class BadImageList {
 public:
  /// \param sink  Receives a warning for each image; empty: `terminal()`.
  explicit BadImageList(Sink sink) : sink_(std::move(sink)) {}

  /// Records a bad image, and warns if it was not recorded before.
  /// \param total  Number of all images.
  /// \throws DataError listing the bad images if they are more than a fraction
  ///         `max_fraction` of all images.
  void add(int64_t index, BadImage image, int64_t total, double max_fraction);

  /// Sorted by index.
  std::vector<BadImage> all() const;

 private:
  Sink sink_;
  mutable std::mutex mutex_;
  std::map<int64_t, BadImage> images_;
};

struct VerifyImagesOptions {
  DecodeOptions decode = {};
  /// Deletes the bad files.
  bool remove = false;
  /// Number of threads; -1: one per core.
  int64_t workers = -1;
  /// Receives the progress; empty: `terminal()`.
  Sink sink = {};
};

/// Result of `verify_images`.
struct ImageReport {
  int64_t checked = 0, removed = 0;
  /// In the order of the paths.
  std::vector<BadImage> bad = {};
};

/// Decodes every image and reports the images that fail.
///
///   ImageReport report = verify_images("photos");
///   for (const BadImage& bad : report.bad) std::puts(bad.reason.c_str());
///
/// Finds truncated files and wrong checksums. JPEG, WebP and BMP have no
/// checksums, so most flipped bits only change pixels and are not detected; see
/// `write_image_manifest`.
///
/// \throws IoError if a bad file cannot be deleted.
ImageReport verify_images(
    const std::vector<std::string>& paths,
    const VerifyImagesOptions& options = {});
/// Decodes all images below a folder, at any depth.
ImageReport verify_images(
    const std::filesystem::path& folder,
    const VerifyImagesOptions& options = {});

/// Writes the SHA-256 of every image below a folder, in the format of
/// `sha256sum`. The hashes detect flipped bits that a decoder cannot detect.
///
///   write_image_manifest("photos", "photos.sha256");    // once
///   for (const BadImage& bad :
///        check_image_manifest("photos", "photos.sha256"))
///     fmt::print("{}: {}\n", bad.path, bad.reason);
///
/// \return  Number of images listed; paths are relative to `folder`.
/// \throws the errors of `find_image_files`; DataError or IoError if a file
///         cannot be read or written.
int64_t write_image_manifest(
    const std::filesystem::path& folder,
    const std::filesystem::path& manifest);

/// Returns the images that have changed, are missing or are not in the
/// manifest, sorted by path.
/// \throws DataError if the manifest is damaged; IoError.
std::vector<BadImage> check_image_manifest(
    const std::filesystem::path& folder,
    const std::filesystem::path& manifest);

/// A validation image that is also a training image.
struct DuplicateImage {
  std::string valid, train;
  /// True if both names are links to the same file; false for two files with
  /// equal bytes.
  bool is_link = false;
};

/// Finds the files of `valid` that are also in `train`. Returns them in the
/// order of `valid`, each with its first match. Reads only files whose size
/// occurs in both lists, on all cores.
///
///   for (const auto& pair : duplicate_images(train_paths, valid_paths)) ...
///
/// \throws IoError if a file cannot be read.
std::vector<DuplicateImage> duplicate_images(
    const std::vector<std::string>& train,
    const std::vector<std::string>& valid);

}  // namespace tern
