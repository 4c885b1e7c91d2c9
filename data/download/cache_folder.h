#pragma once

#include <filesystem>
#include <string>

namespace tern {

/// Value of an environment variable; empty if it is not set.
std::string environment(const char* name);

/// Where fetched data is kept: `given`, or if that is empty TERN_CACHE, else
/// XDG_CACHE_HOME/tern/data, else ~/.cache/tern/data.
/// \throws DataError if none of them is known.
std::filesystem::path cache_folder(const std::filesystem::path& given);

/// Writes a marker into a folder of data: where the data comes from and what
/// the folder holds. It goes in last, just before the folder gets its name.
///
/// \param source  One line or more, each with its newline.
void write_source_marker(
    const std::filesystem::path& folder,
    const std::string& source);

/// Whether a folder exists and is whole, as far as its marker tells. A folder
/// with content and no marker was put there by hand and is trusted.
///
/// Looks at the names at the top, which takes microseconds. Only when the
/// machine was started again since, and so may have lost what was not yet on
/// the disk, are all files counted and their sizes added up.
///
/// \param source  How the marker must begin; empty: whatever it says.
bool is_whole_data(
    const std::filesystem::path& folder,
    const std::string& source = "");

}  // namespace tern
