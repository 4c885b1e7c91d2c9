#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

/// Bytes of a file, inflated on the way when they begin as gzip does, else as
/// they are. Checks the CRC-32 and the length at the end of each gzip member;
/// several members in a row are one stream.
class GzipReader {
 public:
  /// \param max_bytes  Most bytes after inflating, so that a small file cannot
  ///     fill the memory or the disk. They may be 200 times those before;
  ///     deflate itself ends at 1032, pictures and tables stay under 100.
  explicit GzipReader(ByteFile file, int64_t max_bytes = int64_t{64} << 30);
  ~GzipReader();

  /// Fills `bytes`; fewer only at the end, so 0 means that all is read.
  /// \throws DataError if the stream is damaged, cut off or over a limit;
  ///         IoError.
  size_t read(std::span<uint8_t> bytes);

  /// Bytes taken from the file.
  int64_t bytes_in() const { return static_cast<int64_t>(bytes_in_); }

 private:
  struct Inflater;

  void refill();
  size_t inflate_some(std::span<uint8_t> bytes);
  void expect_end_or_next_member();

  ByteFile file_;
  int64_t max_bytes_;
  std::vector<uint8_t> buffer_;
  std::span<uint8_t> input_;  // what is left in buffer_
  uint64_t bytes_in_ = 0;
  int64_t bytes_out_ = 0;
  bool is_over_ = false;
  std::unique_ptr<Inflater> inflater_;  // null: not gzip
};

/// All that a GzipReader gives.
std::vector<uint8_t> gunzip(
    const ByteFile& file,
    int64_t max_bytes = int64_t{64} << 30);

}  // namespace tern
