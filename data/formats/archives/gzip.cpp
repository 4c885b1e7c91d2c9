#include "tern/data/formats/archives/gzip.h"

#include <algorithm>
#include <zlib.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 17;
constexpr int64_t kMaxRatio = 200, kRatioFreeBytes = int64_t{64} << 20;

}  // namespace

struct GzipReader::Inflater {
  z_stream stream{};
  bool member_is_over = false;

  Inflater() {
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
};

GzipReader::GzipReader(ByteFile file, int64_t max_bytes)
    : file_(std::move(file)), max_bytes_(max_bytes), buffer_(kBufferBytes) {
  refill();
  if (as_text(input_).starts_with("\x1f\x8b")) {
    inflater_ = std::make_unique<Inflater>();
  }
}

GzipReader::~GzipReader() = default;

void GzipReader::refill() {
  input_ = std::span(buffer_).first(
      std::min<uint64_t>(buffer_.size(), file_.size() - bytes_in_));
  file_.read(bytes_in_, input_);
  bytes_in_ += input_.size();
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
    if (bytes_out_ > max_bytes_) {
      throw DataError(
          file_.path(),
          "inflates to more than the limit of " + std::to_string(max_bytes_) +
              " bytes.");
    }
    if (inflater_ && bytes_out_ > kRatioFreeBytes &&
        bytes_out_ / kMaxRatio > bytes_in()) {
      throw DataError(
          file_.path(),
          "inflates to more than " + std::to_string(kMaxRatio) +
              " times its size and is rejected as a decompression bomb.");
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
        file_.path(),
        "ends in the middle of its gzip stream, after " +
            std::to_string(bytes_in_) +
            " bytes; the file is truncated. Download it again.");
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
        file_.path(),
        std::string("has a damaged gzip stream (") +
            (stream.msg != nullptr ? stream.msg : "unknown error") +
            "). Download it again.");
  }
  return room - stream.avail_out;
}

// A member is followed by the end of the file, by zero padding from a tape or a
// block device, or by another member.
void GzipReader::expect_end_or_next_member() {
  while (input_.empty() || input_[0] == 0) {
    if (input_.empty()) refill();
    is_over_ = input_.empty();
    if (is_over_) return;
    if (input_[0] == 0) input_ = input_.subspan(1);
  }
  if (input_[0] != 0x1f) {
    throw DataError(
        file_.path(),
        "has data after its gzip stream that is not gzip.");
  }
  inflateReset(&inflater_->stream);
  inflater_->member_is_over = false;
}

std::vector<uint8_t> gunzip(const ByteFile& file, int64_t max_bytes) {
  GzipReader reader(file, max_bytes);
  std::vector<uint8_t> bytes;
  size_t size = 0;
  while (size == bytes.size()) {
    bytes.resize(std::max<size_t>(kBufferBytes, 2 * size));
    size += reader.read(std::span(bytes).subspan(size));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace tern
