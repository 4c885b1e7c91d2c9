#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

/// Reads a file and decompresses it if it begins like gzip; otherwise returns
/// its bytes unchanged. Checks the CRC-32 and the length at the end of each
/// gzip member; consecutive members form one stream.
class GzipReader {
 public:
  /// \param max_bytes  Maximum number of decompressed bytes, so that a small
  ///                   file cannot fill the memory or the disk. Output beyond
  ///                   64 MiB is also limited to 200 times the number of
  ///                   compressed bytes. (Deflate's maximum is 1032; images and
  ///                   tables stay below 100.)
  explicit GzipReader(ByteFile file, int64_t max_bytes = int64_t{64} << 30);
  ~GzipReader();

  /// Fills `bytes`. Returns fewer only at the end, so 0 means the end.
  /// \throws DataError if the stream is damaged, truncated or over a limit;
  ///         IoError.
  size_t read(std::span<uint8_t> bytes);

  /// Bytes read from the file.
  int64_t bytes_in() const { return static_cast<int64_t>(bytes_in_); }

 private:
  struct Inflater;

  void refill();
  size_t inflate_some(std::span<uint8_t> bytes);
  void expect_end_or_next_member();

  ByteFile file_;
  int64_t max_bytes_;
  std::vector<uint8_t> buffer_;
  std::span<uint8_t> input_;  // the unread part of buffer_
  uint64_t bytes_in_ = 0;
  int64_t bytes_out_ = 0;
  bool is_over_ = false;
  std::unique_ptr<Inflater> inflater_;  // null: not gzip
};

/// Returns all bytes of a GzipReader.
std::vector<uint8_t> gunzip(
    const ByteFile& file,
    int64_t max_bytes = int64_t{64} << 30);

}  // namespace tern
