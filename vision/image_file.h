#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tern {

/// Memory that a thread uses again for every image, so that decoding allocates
/// nothing in steady state. A large buffer is given back when a much smaller
/// one is asked for: one huge image does not hold its memory for ever.
class ScratchBuffer {
 public:
  /// At least `size` uninitialised bytes, good until the next call.
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

/// The largest encoded image that is read unless a program says otherwise.
inline constexpr int64_t kMaxImageBytes = int64_t{256} << 20;

/// Reads a whole image file into `buffer`.
///
/// \return  The bytes of the file, in `buffer`.
/// \throws IoError if the file cannot be opened or read; DataError if it is no
///         regular file (a folder, a pipe, a device), has more than `max_bytes`
///         or changes while it is read.
///
/// Never blocks on a pipe. Four system calls: open, fstat, read, close.
std::span<const uint8_t> read_image_file(
    const std::string& path,
    ScratchBuffer& buffer,
    int64_t max_bytes = kMaxImageBytes);

/// Where the encoded images of a data set are when they are no files of their
/// own. Shared by threads.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  /// The whole image at `index`, as a file of its own would hold it. Bytes that
  /// had to be read are in `buffer`.
  /// \throws DataError, IoError.
  virtual std::span<const uint8_t> read(int64_t index, ScratchBuffer& buffer)
      const = 0;

  /// A text that is another one once the images are others.
  virtual std::string version() const = 0;
};

}  // namespace tern
