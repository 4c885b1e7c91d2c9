#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace tern {

/// SHA-256 sums by file name; 64 lower-case digits each.
using Sha256Sums = std::map<std::string, std::string>;

/// The lines that `sha256sum -c` reads: "<SHA-256>  train-000000.tar".
std::string to_text(const Sha256Sums& sums);

/// \param path  For error messages.
/// \throws DataError naming the line that is no sum, or whose name is of no
///         file in the list's own folder, or comes twice.
Sha256Sums parse_sha256sums(
    std::span<const uint8_t> bytes,
    const std::string& path);

/// \throws as `parse_sha256sums`; IoError.
Sha256Sums read_sha256sums(const std::filesystem::path& path);

}  // namespace tern
