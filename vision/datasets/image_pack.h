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

/// Decoded images in one memory-mapped file. Reading an image does not copy it.
///
///   auto pack = ImagePack::open("cache/train.pack");
///   PixelView cat = pack->image(0);   // [cat.height, cat.width, 3]
///
/// The file contains the pixels of all images, an entry of 32 bytes per image
/// with its offset, sizes and CRC-32, and a footer of 96 bytes; numbers are
/// little-endian. The footer and the entries are verified when the pack is
/// opened, an image when it is first read.
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
  /// Returns a view of the image at `index`. Thread-safe.
  /// \throws DataError if its checksum is wrong.
  PixelView image(int64_t index) const;
  /// Returns the EXIF orientation by which the image was rotated upright; 1 if
  /// it was not rotated.
  int exif_orientation(int64_t index) const {
    return static_cast<int>(entries_.at(index).exif_orientation);
  }
  /// Returns the size of the original upright image, before it was resized.
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

/// Writes a pack. The file gets its name only when it is complete, so readers
/// never open a partial pack.
class ImagePackWriter {
 public:
  /// \param key  64 characters that identify the source of the pack.
  /// \throws IoError if the file cannot be created.
  ImagePackWriter(
      const std::filesystem::path& file,
      int64_t count,
      int64_t channels,
      std::string key);

  /// Adds an image [height, width, channels] that was rotated upright by its
  /// EXIF orientation. Images may be added in any order and from several
  /// threads. `ImagePack::has` returns false for images that were never added.
  /// \param original  Size of the original upright image; unset: the image was
  ///                  not resized.
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
