#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/weights/stored_tensor.h"

namespace tern {

/// Returns the tensors of a weight file in any supported format, which is
/// detected from the content.
/// \param key  As in `read_pth`.
/// \throws the errors of `read_safetensors_header` and `read_pth`; DataError
///         for a file in any other format, with its format if known; and if a
///         key is given for a safetensors file, which has no dictionaries.
StoredWeights read_weight_header(
    const ByteFile& file,
    const std::string& key = "");

/// Reads a storage and checks its CRC-32 if it has one.
/// \param bytes  Must have the size of the storage.
/// \throws DataError if the checksum is wrong or the file ends; IoError.
void read_storage(
    const ByteFile& file,
    const StoredBytes& storage,
    std::span<uint8_t> bytes);

/// The same for a storage that is already in memory.
void check_storage(
    const ByteFile& file,
    const StoredBytes& storage,
    std::span<const uint8_t> bytes);

}  // namespace tern
