#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// What inflating may cost at most, so that a small file cannot fill the
/// memory or the disk.
struct GzipLimits {
  /// Bytes after inflating.
  int64_t max_bytes = int64_t{64} << 30;
  /// Bytes after inflating for each byte before. Not looked at below 64 MiB.
  /// Deflate itself ends at 1032; pictures and tables stay under 100.
  int64_t max_ratio = 200;
};

/// Where bytes come from: fills the span from its start and returns how many
/// it gave; fewer than asked only at the end.
using ByteSource = std::function<size_t(std::span<uint8_t>)>;

/// Bytes of a source, inflated on the way when they begin as gzip does, else
/// as they are. Checks the CRC-32 and the length at the end of each gzip
/// member; several members in a row are one stream.
class GzipReader {
 public:
  /// \param path  For error messages.
  GzipReader(ByteSource source, std::string path, GzipLimits limits = {});
  /// Reads a regular file. \throws IoError, DataError.
  explicit GzipReader(
      const std::filesystem::path& path,
      GzipLimits limits = {});
  ~GzipReader();

  /// Fills `bytes`; fewer only at the end, so 0 means that all is read.
  /// \throws DataError if the stream is damaged, cut off or over a limit.
  size_t read(std::span<uint8_t> bytes);

  /// Bytes taken from the source.
  int64_t bytes_in() const { return bytes_in_; }

 private:
  struct Inflater;

  void refill();
  size_t inflate_some(std::span<uint8_t> bytes);
  void expect_end_or_next_member();

  ByteSource source_;
  std::string path_;
  GzipLimits limits_;
  std::vector<uint8_t> buffer_;
  std::span<uint8_t> input_;  // what is left in buffer_
  int64_t bytes_in_ = 0, bytes_out_ = 0;
  bool is_over_ = false;
  std::unique_ptr<Inflater> inflater_;  // null: not gzip
};

/// `bytes` inflated, or as they are when they do not begin as gzip does.
/// \throws DataError as GzipReader.
std::vector<uint8_t> gunzip(
    std::span<const uint8_t> bytes,
    const std::string& path,
    GzipLimits limits = {});

/// The content of a file, inflated when it is gzip.
/// \throws DataError as GzipReader; IoError.
std::vector<uint8_t> read_gzip_file(
    const std::filesystem::path& path,
    GzipLimits limits = {});

}  // namespace tern
