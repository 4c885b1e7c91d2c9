#pragma once

#include <filesystem>
#include <string>

namespace tern {

/// Returns the value of an environment variable; empty if it is not set.
std::string environment(const char* name);

/// Returns the folder for downloaded data: `given`, or if that is empty,
/// TERN_CACHE if set, else XDG_CACHE_HOME/tern/data if set, else
/// ~/.cache/tern/data.
/// \throws DataError if none of these variables, nor HOME, is set.
std::filesystem::path cache_folder(const std::filesystem::path& given);

/// Writes a marker file that records the source and the contents of a data
/// folder. The marker is written last, just before the folder is renamed to its
/// final name.
///
/// \param source  One or more lines, each with its newline.
void write_source_marker(
    const std::filesystem::path& folder,
    const std::string& source);

/// True if a folder exists and is complete according to its marker. A non-empty
/// folder without a marker was created by hand and is trusted.
///
/// Checks the names at the top level, which takes microseconds. If the machine
/// has restarted since the marker was written, data that was not yet on the
/// disk may be lost; in that case, also checks the number of files and their
/// total size.
///
/// \param source  Text with which the recorded source must begin; empty: any
///                source is accepted.
bool is_whole_data(
    const std::filesystem::path& folder,
    const std::string& source = "");

}  // namespace tern
