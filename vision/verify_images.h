#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tern/learner/sink.h"
#include "tern/vision/bad_images.h"
#include "tern/vision/decode.h"

namespace tern {

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

}  // namespace tern
