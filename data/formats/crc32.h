#pragma once

#include <cstdint>
#include <span>

namespace tern {

/// CRC-32 of zip and PNG (reflected 0xEDB88320) over bytes that come piece by
/// piece: give what the pieces before had, 0 for the first.
uint32_t crc32(std::span<const uint8_t> bytes, uint32_t before = 0);

}  // namespace tern
