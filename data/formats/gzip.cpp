#include "tern/data/formats/gzip.h"

#include <algorithm>
#include <zlib.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 17;
constexpr int64_t kRatioFreeBytes = int64_t{64} << 20;

bool begins_as_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

ByteSource file_source(const std::filesystem::path& path) {
  auto file = std::make_shared<FileHandle>(open_regular_file(path));
  return [file, path](std::span<uint8_t> bytes) {
    return read_up_to(*file, bytes, path);
  };
}

std::vector<uint8_t> read_all(GzipReader& reader) {
  std::vector<uint8_t> bytes;
  size_t size = 0;
  while (true) {
    bytes.resize(std::max<size_t>(kBufferBytes, 2 * size));
    size += reader.read(std::span(bytes).subspan(size));
    if (size < bytes.size()) break;
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

struct GzipReader::Inflater {
  z_stream stream{};
  bool member_is_over = false;

  Inflater() {
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
};

GzipReader::GzipReader(ByteSource source, std::string path, GzipLimits limits)
    : source_(std::move(source)),
      path_(std::move(path)),
      limits_(limits),
      buffer_(kBufferBytes) {
  refill();
  if (begins_as_gzip(input_)) inflater_ = std::make_unique<Inflater>();
}

GzipReader::GzipReader(const std::filesystem::path& path, GzipLimits limits)
    : GzipReader(file_source(path), path.string(), limits) {}

GzipReader::~GzipReader() = default;

void GzipReader::refill() {
  const size_t n = source_(buffer_);
  input_ = std::span(buffer_).first(n);
  bytes_in_ += static_cast<int64_t>(n);
}

size_t GzipReader::read(std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size() && !is_over_) {
    const auto rest = bytes.subspan(done);
    size_t n = 0;
    if (inflater_) {
      n = inflate_some(rest);
    } else {
      if (input_.empty()) refill();
      n = std::min(rest.size(), input_.size());
      std::copy_n(input_.begin(), n, rest.begin());
      input_ = input_.subspan(n);
      is_over_ = n == 0;
    }
    done += n;
    bytes_out_ += static_cast<int64_t>(n);
    if (bytes_out_ > limits_.max_bytes) {
      throw DataError(
          path_,
          "holds more than the " + std::to_string(limits_.max_bytes) +
              " bytes that are allowed here");
    }
    if (inflater_ && bytes_out_ > kRatioFreeBytes &&
        bytes_out_ / limits_.max_ratio > bytes_in_) {
      throw DataError(
          path_,
          "inflates to more than " + std::to_string(limits_.max_ratio) +
              " times its size; refused as a decompression bomb");
    }
  }
  return done;
}

size_t GzipReader::inflate_some(std::span<uint8_t> bytes) {
  if (inflater_->member_is_over) {
    expect_end_or_next_member();
    if (is_over_) return 0;
  }
  if (input_.empty()) refill();
  if (input_.empty()) {
    throw DataError(
        path_,
        "ends in the middle of its gzip stream, after " +
            std::to_string(bytes_in_) +
            " bytes; the file is cut off. Fetch it again");
  }
  z_stream& stream = inflater_->stream;
  const size_t room = std::min<size_t>(bytes.size(), size_t{1} << 30);
  stream.next_in = input_.data();
  stream.avail_in = static_cast<uInt>(input_.size());
  stream.next_out = bytes.data();
  stream.avail_out = static_cast<uInt>(room);
  const int result = inflate(&stream, Z_NO_FLUSH);
  input_ = input_.last(stream.avail_in);
  if (result == Z_STREAM_END) {
    inflater_->member_is_over = true;
  } else if (result == Z_MEM_ERROR) {
    throw std::bad_alloc();
  } else if (result != Z_OK && result != Z_BUF_ERROR) {
    throw DataError(
        path_,
        std::string("has a damaged gzip stream (") +
            (stream.msg != nullptr ? stream.msg : "unknown fault") +
            "). Fetch it again");
  }
  return room - stream.avail_out;
}

// After a member: nothing, zeros that a tape or a block device added, or
// another member.
void GzipReader::expect_end_or_next_member() {
  while (true) {
    while (!input_.empty() && input_[0] == 0) input_ = input_.subspan(1);
    if (!input_.empty()) break;
    refill();
    if (input_.empty()) {
      is_over_ = true;
      return;
    }
  }
  if (input_[0] != 0x1f) {
    throw DataError(path_, "has bytes after its gzip stream that are not gzip");
  }
  inflateReset(&inflater_->stream);
  inflater_->member_is_over = false;
}

std::vector<uint8_t> gunzip(
    std::span<const uint8_t> bytes,
    const std::string& path,
    GzipLimits limits) {
  const ByteSource source = [bytes](std::span<uint8_t> out) mutable {
    const size_t n = std::min(out.size(), bytes.size());
    std::copy_n(bytes.begin(), n, out.begin());
    bytes = bytes.subspan(n);
    return n;
  };
  GzipReader reader(source, path, limits);
  return read_all(reader);
}

std::vector<uint8_t> read_gzip_file(
    const std::filesystem::path& path,
    GzipLimits limits) {
  GzipReader reader(path, limits);
  return read_all(reader);
}

}  // namespace tern
