#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "tern/data/formats/samples/tiff.h"

namespace tern {

/// Writes a TIFF file whose directory precedes its pixels, like Pillow and
/// tifffile. A truncated file then has its tags, but lacks pixels.
struct TiffFile {
  /// Without the offsets and sizes of the blocks.
  std::map<uint16_t, std::vector<uint32_t>> tags;
  /// The strips or tiles.
  std::vector<std::vector<uint8_t>> blocks;
  bool big_endian = false, has_sizes = true;

  std::vector<uint8_t> bytes() const {
    auto all = tags;
    const bool is_tiled = tags.contains(TiffTags::kTileWidth);
    std::vector<uint32_t>& offsets =
        all[is_tiled ? TiffTags::kTileOffsets : TiffTags::kStripOffsets];
    offsets.assign(blocks.size(), 0xffffffff);  // placeholders
    for (const auto& block : blocks) {
      if (!has_sizes) break;
      all[is_tiled ? TiffTags::kTileByteCounts : TiffTags::kStripByteCounts]
          .push_back(static_cast<uint32_t>(block.size()));
    }
    const size_t directory_end = 8 + 2 + 12 * all.size() + 4;
    size_t end = directory_end;
    for (const auto& [tag, values] : all) {
      const size_t size = values.size() * size_of(type_of(tag, values));
      if (size > 4) end += size;
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      offsets[i] = static_cast<uint32_t>(end);
      end += blocks[i].size();
    }

    Writer file{big_endian}, values_behind{big_endian};
    file.bytes.assign(2, big_endian ? 'M' : 'I');
    file.number(42, 2);
    file.number(8, 4);
    file.number(static_cast<uint32_t>(all.size()), 2);
    for (const auto& [tag, values] : all) {
      // The offsets keep the type for which space was reserved.
      const uint32_t type = &values == &offsets ? kLong : type_of(tag, values);
      file.number(tag, 2);
      file.number(type, 2);
      file.number(static_cast<uint32_t>(values.size()), 4);
      Writer content{big_endian};
      for (const uint32_t value : values) content.number(value, size_of(type));
      if (content.bytes.size() > 4) {
        const size_t at = directory_end + values_behind.bytes.size();
        file.number(static_cast<uint32_t>(at), 4);
        values_behind.append(content.bytes);
      } else {
        content.bytes.resize(4);
        file.append(content.bytes);
      }
    }
    file.number(0, 4);
    file.append(values_behind.bytes);
    for (const auto& block : blocks) file.append(block);
    return file.bytes;
  }

 private:
  static constexpr uint32_t kShort = 3, kLong = 4, kUndefined = 7;

  struct Writer {
    bool big_endian;
    std::vector<uint8_t> bytes = {};

    void number(uint32_t value, size_t size) {
      for (size_t i = 0; i < size; ++i) {
        const size_t byte = big_endian ? size - 1 - i : i;
        bytes.push_back(static_cast<uint8_t>(value >> 8 * byte));
      }
    }
    void append(const std::vector<uint8_t>& more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
  };

  static uint32_t type_of(uint16_t tag, const std::vector<uint32_t>& values) {
    if (tag == TiffTags::kJpegTables) return kUndefined;
    return *std::max_element(values.begin(), values.end()) > 0xffff ? kLong
                                                                    : kShort;
  }
  static size_t size_of(uint32_t type) {
    return type == kLong ? 4 : type == kShort ? 2 : 1;
  }
};

/// Parses a TIFF file in strips as written by libtiff, with its directory after
/// the pixels.
inline TiffFile read_tiff_file(const std::vector<uint8_t>& bytes) {
  const TiffTags tags(bytes);
  constexpr uint16_t kPredictor = 317;
  TiffFile file;
  for (const uint16_t tag :
       {TiffTags::kWidth,
        TiffTags::kHeight,
        TiffTags::kBitsPerSample,
        TiffTags::kCompression,
        TiffTags::kPhotometric,
        TiffTags::kSamplesPerPixel,
        TiffTags::kRowsPerStrip,
        kPredictor,
        TiffTags::kExtraSamples,
        TiffTags::kJpegTables}) {
    const TiffTags::Values values = tags.find(tag);
    for (size_t i = 0; i < values.count; ++i) {
      file.tags[tag].push_back(
          tag == TiffTags::kJpegTables ? bytes[values.at + i]
                                       : tags.load(values, i));
    }
  }
  const TiffTags::Values offsets = tags.find(TiffTags::kStripOffsets);
  const TiffTags::Values sizes = tags.find(TiffTags::kStripByteCounts);
  for (size_t i = 0; i < offsets.count; ++i) {
    const auto begin = bytes.begin() + tags.load(offsets, i);
    file.blocks.emplace_back(begin, begin + tags.load(sizes, i));
  }
  return file;
}

}  // namespace tern
