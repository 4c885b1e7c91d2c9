#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tern/data/support/sink.h"

namespace tern {

/// Memory that a thread reuses for all images, so that decoding allocates no
/// memory in steady state. A large buffer is freed when a much smaller one is
/// requested.
class ScratchBuffer {
 public:
  /// Returns at least `size` uninitialized bytes, valid until the next call.
  uint8_t* get(size_t size) {
    constexpr size_t kKept = size_t{64} << 20;
    if (size > size_ || (size_ > kKept && size < size_ / 4)) {
      bytes_.reset();
      size_ = 0;
      bytes_.reset(new uint8_t[size]);
      size_ = size;
    }
    return bytes_.get();
  }

  const uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
};

/// Default limit on the size of an image file.
inline constexpr int64_t kMaxImageBytes = int64_t{256} << 20;

/// Reads an image file into `buffer`. Never blocks on a pipe.
///
/// \return  The bytes of the file, in `buffer`.
/// \throws IoError if the file cannot be opened or read; DataError if it is not
///         a regular file, has more than `max_bytes` bytes or is truncated
///         while it is read.
std::span<const uint8_t> read_image_file(
    const std::string& path,
    ScratchBuffer& buffer,
    int64_t max_bytes = kMaxImageBytes);

/// A source of encoded images that are not separate files, such as a tar shard.
/// Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  /// Returns the encoded image at `index`. If it is read from a file, the bytes
  /// are stored in `buffer`.
  /// \throws DataError, IoError.
  virtual std::span<const uint8_t> read(int64_t index, ScratchBuffer& buffer)
      const = 0;

  /// Returns a string that changes when the images change.
  virtual std::string version() const = 0;
};

/// Calls `action(index)` for 0..count-1 in several threads. Rethrows the first
/// exception after all threads have stopped.
/// \param task     Name of the task in the progress line.
/// \param sink     Receives progress; by default it is discarded. Empty:
///                 `terminal()`.
/// \param workers  Number of threads; -1: one per core.
void for_each_image(
    int64_t count,
    const std::function<void(int64_t index)>& action,
    const char* task,
    const Sink& sink = silent(),
    int64_t workers = -1);

}  // namespace tern
