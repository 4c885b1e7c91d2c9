#pragma once

#include <filesystem>

namespace tern {

/// Where fetched data is kept: `given`, or if that is empty TERN_CACHE, else
/// XDG_CACHE_HOME/tern/data, else ~/.cache/tern/data.
/// \throws DataError if none of them is known.
std::filesystem::path cache_folder(const std::filesystem::path& given);

}  // namespace tern
