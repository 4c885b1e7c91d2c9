#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tern/vision/bad_images.h"

namespace tern {

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

}  // namespace tern
