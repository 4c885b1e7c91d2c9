#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tern/vision/scratch_buffer.h"

namespace tern {

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

}  // namespace tern
