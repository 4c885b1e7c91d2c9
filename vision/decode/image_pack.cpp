#include "tern/vision/decode/image_pack.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <libdeflate.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "tern/data/formats/error.h"

namespace tern {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr char kMagic[9] = "TERNPACK";
constexpr uint32_t kVersion = 1;
constexpr size_t kKeyLength = 64;

uint32_t crc_of(const void* bytes, size_t size) {
  return libdeflate_crc32(0, bytes, size);
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* what) {
  throw DataError(
      file.string(),
      fmt::format(
          "is a damaged image pack: {}. Remove it; it is then made again.",
          what));
}

void write_at(
    const FileHandle& file,
    std::span<const uint8_t> bytes,
    uint64_t offset,
    const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(
        file.fd(),
        bytes.data(),
        bytes.size(),
        static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      throw IoError(path, "write the image pack", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

}  // namespace

struct ImagePack::Header {
  char magic[8];
  uint32_t version, channels;
  uint64_t count;
  char key[kKeyLength];
  uint32_t entries_crc;
  /// Of all before it.
  uint32_t crc;
};

std::shared_ptr<const ImagePack> ImagePack::open(
    const std::filesystem::path& file) {
  static_assert(sizeof(Header) == 96 && sizeof(Entry) == 24);
  const FileHandle handle = open_regular_file(file);
  const auto length = static_cast<size_t>(file_size(handle, file));
  if (length < sizeof(Header)) {
    fail(file, "it is shorter than its header");
  }
  void* bytes = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, handle.fd(), 0);
  if (bytes == MAP_FAILED) {
    throw IoError(file, "map into memory", errno);
  }
  const std::shared_ptr<ImagePack> pack(new ImagePack);
  pack->file_ = file;
  pack->bytes_ = static_cast<const uint8_t*>(bytes);
  pack->length_ = length;

  Header header;
  std::memcpy(&header, bytes, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 ||
      header.version != kVersion) {
    fail(file, "it does not start as one");
  }
  if (crc_of(&header, offsetof(Header, crc)) != header.crc ||
      (header.channels != 1 && header.channels != 3)) {
    fail(file, "its header's checksum is wrong");
  }
  const size_t room = length - sizeof(Header);
  if (header.count > room / sizeof(Entry)) {
    fail(file, "it is shorter than its header says");
  }
  const size_t entries_size = header.count * sizeof(Entry);
  const uint8_t* entries = pack->bytes_ + length - entries_size;
  if (crc_of(entries, entries_size) != header.entries_crc) {
    fail(file, "the checksum of its entries is wrong");
  }
  pack->entries_.resize(header.count);
  if (entries_size > 0) {
    std::memcpy(pack->entries_.data(), entries, entries_size);
  }
  for (const Entry& entry : pack->entries_) {
    const uint64_t size =
        uint64_t{entry.height} * entry.width * header.channels;
    const uint64_t limit = length - entries_size;
    if (entry.offset > limit || size > limit - entry.offset) {
      fail(file, "an image lies outside of it");
    }
  }
  pack->channels_ = header.channels;
  pack->key_.assign(header.key, kKeyLength);
  pack->is_checked_ = std::vector<std::atomic<uint8_t>>(header.count);
  return pack;
}

ImagePack::~ImagePack() {
  if (bytes_ != nullptr) {
    ::munmap(const_cast<uint8_t*>(bytes_), length_);
  }
}

bool ImagePack::has(int64_t index) const {
  return entries_.at(static_cast<size_t>(index)).height != 0;
}

PixelView ImagePack::image(int64_t index) const {
  const Entry& entry = entries_.at(static_cast<size_t>(index));
  const uint8_t* pixels = bytes_ + entry.offset;
  const int64_t stride = int64_t{entry.width} * channels_;
  std::atomic<uint8_t>& is_checked = is_checked_[static_cast<size_t>(index)];
  if (is_checked.load(std::memory_order_relaxed) == 0) {
    if (crc_of(pixels, static_cast<size_t>(stride) * entry.height) !=
        entry.crc) {
      fail(file_, "the checksum of an image is wrong");
    }
    is_checked.store(1, std::memory_order_relaxed);
  }
  return {
      .pixels = pixels,
      .height = entry.height,
      .width = entry.width,
      .channels = channels_,
      .stride = stride,
      .end = bytes_ + length_};
}

ImagePackWriter::ImagePackWriter(
    std::filesystem::path file,
    int64_t count,
    int64_t channels,
    std::string key)
    : file_(std::move(file)),
      channels_(channels),
      key_(std::move(key)),
      entries_(static_cast<size_t>(count)),
      end_(sizeof(ImagePack::Header)) {
  key_.resize(kKeyLength, ' ');
  make_folders(file_.parent_path());
  temporary_ = file_;
  temporary_ += fmt::format(".{}.tmp", ::getpid());
  handle_ = open_file(temporary_, O_RDWR | O_CREAT | O_TRUNC);
}

ImagePackWriter::~ImagePackWriter() {
  if (handle_.is_open()) {
    ::unlink(temporary_.c_str());
  }
}

void ImagePackWriter::write(
    int64_t index,
    int64_t height,
    int64_t width,
    const uint8_t* pixels) {
  const auto size = static_cast<size_t>(height * width * channels_);
  constexpr uint64_t kAlignment = 64;
  const uint64_t room = (size + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t offset = end_.fetch_add(room);
  write_at(handle_, {pixels, size}, offset, temporary_);
  entries_.at(static_cast<size_t>(index)) = {
      offset,
      static_cast<uint32_t>(height),
      static_cast<uint32_t>(width),
      crc_of(pixels, size),
      0};
}

void ImagePackWriter::publish() {
  ImagePack::Header header{};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.version = kVersion;
  header.channels = static_cast<uint32_t>(channels_);
  header.count = entries_.size();
  std::memcpy(header.key, key_.data(), kKeyLength);
  const std::span<const uint8_t> entries(
      reinterpret_cast<const uint8_t*>(entries_.data()),
      entries_.size() * sizeof(ImagePack::Entry));
  header.entries_crc = crc_of(entries.data(), entries.size());
  header.crc = crc_of(&header, offsetof(ImagePack::Header, crc));
  write_at(handle_, entries, end_, temporary_);
  write_at(
      handle_,
      {reinterpret_cast<const uint8_t*>(&header), sizeof header},
      0,
      temporary_);
  sync_file(handle_, temporary_);
  if (::rename(temporary_.c_str(), file_.c_str()) != 0) {
    throw IoError(file_, "rename the finished image pack to this name", errno);
  }
  handle_ = FileHandle();
  sync_folder(file_.parent_path().empty() ? "." : file_.parent_path());
}

}  // namespace tern
