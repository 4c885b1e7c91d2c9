#include "tern/vision/datasets/image_pack.h"

#include <bit>
#include <cstring>
#include <libdeflate.h>
#include <span>
#include <utility>

#include "tern/data/formats/file_io.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/decode/sample_pixels.h"

namespace tern {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr char kMagic[9] = "TERNPACK";
constexpr uint32_t kVersion = 3;
constexpr size_t kKeyLength = 64;

uint32_t crc_of(const void* bytes, size_t size) {
  return libdeflate_crc32(0, bytes, size);
}

template <class T>
std::span<const uint8_t> bytes_of(const T* first, size_t count) {
  return {reinterpret_cast<const uint8_t*>(first), count * sizeof(T)};
}

const std::filesystem::path& with_folder(const std::filesystem::path& file) {
  make_folders(file.parent_path());
  return file;
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* what) {
  throw_data_error(
      file.string(),
      "is a damaged image pack: {}. Remove it.",
      what);
}

}  // namespace

struct ImagePack::Footer {
  char key[kKeyLength];
  uint64_t count;
  char magic[8];
  uint32_t version, channels, entries_crc;
  /// CRC-32 of all fields before it.
  uint32_t crc;
};

std::shared_ptr<const ImagePack> ImagePack::open(
    const std::filesystem::path& file) {
  static_assert(sizeof(Footer) == 96 && sizeof(Entry) == 32);
  const ByteFile bytes(file);
  if (bytes.size() < sizeof(Footer)) {
    fail(file, "it is shorter than its footer");
  }
  const std::shared_ptr<ImagePack> pack(new ImagePack);
  pack->file_ = file;
  pack->bytes_ = bytes.map();
  pack->length_ = bytes.size();

  Footer footer;
  const size_t room = bytes.size() - sizeof(Footer);
  std::memcpy(&footer, pack->bytes_.get() + room, sizeof footer);
  if (std::memcmp(footer.magic, kMagic, sizeof footer.magic) != 0 ||
      footer.version != kVersion) {
    fail(file, "it does not end like an image pack");
  }
  if (crc_of(&footer, offsetof(Footer, crc)) != footer.crc ||
      (footer.channels != 1 && footer.channels != 3)) {
    fail(file, "its footer's checksum is wrong");
  }
  if (footer.count > room / sizeof(Entry)) {
    fail(file, "it is shorter than its footer says");
  }
  const size_t entries_size = footer.count * sizeof(Entry);
  const uint64_t pixels_size = room - entries_size;
  const uint8_t* entries = pack->bytes_.get() + pixels_size;
  if (crc_of(entries, entries_size) != footer.entries_crc) {
    fail(file, "the checksum of its entries is wrong");
  }
  pack->entries_.resize(footer.count);
  if (entries_size > 0) {
    std::memcpy(pack->entries_.data(), entries, entries_size);
  }
  for (const Entry& entry : pack->entries_) {
    const uint64_t size =
        uint64_t{entry.height} * entry.width * footer.channels;
    if (entry.offset > pixels_size || size > pixels_size - entry.offset) {
      fail(file, "an image is outside of it");
    }
  }
  pack->channels_ = footer.channels;
  pack->key_.assign(footer.key, kKeyLength);
  pack->is_checked_ = std::vector<std::atomic<uint8_t>>(footer.count);
  return pack;
}

PixelView ImagePack::image(int64_t index) const {
  const Entry& entry = entries_.at(index);
  const uint8_t* pixels = bytes_.get() + entry.offset;
  const ImageSize size = {entry.height, entry.width};
  std::atomic<uint8_t>& is_checked = is_checked_[index];
  if (is_checked.load(std::memory_order_relaxed) == 0) {
    if (crc_of(pixels, size.height * size.width * channels_) != entry.crc) {
      fail(file_, "the checksum of an image is wrong");
    }
    is_checked.store(1, std::memory_order_relaxed);
  }
  return view_of(pixels, size, channels_, bytes_.get() + length_);
}

ImagePackWriter::ImagePackWriter(
    const std::filesystem::path& file,
    int64_t count,
    int64_t channels,
    std::string key)
    : file_(with_folder(file)),
      channels_(channels),
      key_(std::move(key)),
      entries_(static_cast<size_t>(count)) {
  key_.resize(kKeyLength, ' ');
}

void ImagePackWriter::write(
    int64_t index,
    int64_t height,
    int64_t width,
    const uint8_t* pixels,
    int exif_orientation,
    std::optional<ImageSize> original) {
  const auto size = static_cast<size_t>(height * width * channels_);
  const uint32_t crc = crc_of(pixels, size);
  const std::lock_guard lock(mutex_);
  ImagePack::Entry& entry = entries_.at(index);
  entry.offset = file_.size();
  entry.height = static_cast<uint32_t>(height);
  entry.width = static_cast<uint32_t>(width);
  entry.crc = crc;
  entry.exif_orientation = static_cast<uint32_t>(exif_orientation);
  const ImageSize made_from = original.value_or(ImageSize{height, width});
  entry.original_height = static_cast<uint32_t>(made_from.height);
  entry.original_width = static_cast<uint32_t>(made_from.width);
  file_.write({pixels, size});
}

void ImagePackWriter::publish() {
  ImagePack::Footer footer{};
  std::memcpy(footer.key, key_.data(), kKeyLength);
  footer.count = entries_.size();
  std::memcpy(footer.magic, kMagic, sizeof footer.magic);
  footer.version = kVersion;
  footer.channels = static_cast<uint32_t>(channels_);
  const auto entries = bytes_of(entries_.data(), entries_.size());
  footer.entries_crc = crc_of(entries.data(), entries.size());
  footer.crc = crc_of(&footer, offsetof(ImagePack::Footer, crc));
  file_.write(entries);
  file_.write(bytes_of(&footer, 1));
  file_.commit();
}

}  // namespace tern
