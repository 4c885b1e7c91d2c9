#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "tern/data/formats/weights/stored_tensor.h"

namespace tern {

/// Writes a file that Python's `torch.load(path, weights_only=True)` reads as
/// an OrderedDict.
///
/// \param tensors  Views of `storages`.
/// \param sha256_file  See `sum` of `AtomicFile::commit_with_sum`.
/// \param durable  Wait until the file is on disk.
/// \throws DataError if a name is not UTF-8; IoError.
void write_pth(
    const std::filesystem::path& path,
    const std::vector<StoredTensor>& tensors,
    const std::vector<std::span<const uint8_t>>& storages,
    bool sha256_file,
    bool durable);

}  // namespace tern
