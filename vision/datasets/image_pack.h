#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/formats/atomic_file.h"
#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// Decoded images in one memory-mapped file; reading an image copies nothing.
///
///   auto pack = ImagePack::open("cache/train.pack");
///   PixelView cat = pack->image(0);   // [cat.height, cat.width, 3]
///
/// The file: the pixels of each image, an entry of 32 bytes per image with its
/// offset, sizes and CRC-32, and a footer of 96 bytes. Verifies footer and
/// entries when the pack is opened, an image when it is first read.
/// Little-endian.
class ImagePack {
 public:
  /// \throws IoError, or DataError if the file is not a pack, truncated or
  ///         damaged.
  static std::shared_ptr<const ImagePack> open(
      const std::filesystem::path& file);

  int64_t size() const { return std::ssize(entries_); }
  int64_t channels() const { return channels_; }
  /// Identifies the source of the pack; see ImagePackWriter.
  const std::string& key() const { return key_; }

  /// False if the image at this index could not be decoded.
  bool has(int64_t index) const { return entries_.at(index).height != 0; }
  /// Thread-safe.
  /// \throws DataError if its checksum is wrong.
  PixelView image(int64_t index) const;
  /// By which the image was turned upright; 1: it was not.
  int exif_orientation(int64_t index) const {
    return static_cast<int>(entries_.at(index).exif_orientation);
  }
  /// Size of the upright image that it was made from.
  ImageSize original_size(int64_t index) const {
    const Entry& entry = entries_.at(index);
    return {entry.original_height, entry.original_width};
  }

 private:
  friend class ImagePackWriter;
  struct Entry {
    uint64_t offset;
    uint32_t height, width, crc, exif_orientation;
    uint32_t original_height, original_width;
  };
  struct Footer;

  ImagePack() = default;

  std::filesystem::path file_;
  std::shared_ptr<const uint8_t> bytes_;
  size_t length_ = 0;
  int64_t channels_ = 0;
  std::string key_;
  std::vector<Entry> entries_;
  /// 1 once the image's checksum has been verified.
  mutable std::vector<std::atomic<uint8_t>> is_checked_;
};

/// Writes a pack, which gets its name when it is complete: readers never see a
/// partial one.
class ImagePackWriter {
 public:
  /// \param key  64 characters that identify the source of the pack.
  /// \throws IoError if the file cannot be created.
  ImagePackWriter(
      const std::filesystem::path& file,
      int64_t count,
      int64_t channels,
      std::string key);

  /// Adds an image [height, width, channels], turned upright by its EXIF
  /// orientation. Thread-safe, in any order; an image that is never added is
  /// missing.
  /// \param original  Size of the upright image that it was made from; unset: it
  ///                  has that size.
  void write(
      int64_t index,
      int64_t height,
      int64_t width,
      const uint8_t* pixels,
      int exif_orientation = 1,
      std::optional<ImageSize> original = {});

  /// Completes the file, syncs it to the disk and renames it.
  void publish();

 private:
  std::mutex mutex_;
  AtomicFile file_;
  int64_t channels_;
  std::string key_;
  std::vector<ImagePack::Entry> entries_;
};

}  // namespace tern
