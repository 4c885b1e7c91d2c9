#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tern/vision/scratch_buffer.h"

namespace tern {

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
